"""Models, each with what it brings of its own for the engines: a hand-written step or a stacked forward."""
