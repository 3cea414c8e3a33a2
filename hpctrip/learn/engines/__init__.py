"""Engines: how the sites of a block are trained. `sequential` one after another, `stacked` all at once."""

from hpctrip.learn.engines.choice import EngineChoice, choose, engines

__all__ = ["EngineChoice", "choose", "engines"]
