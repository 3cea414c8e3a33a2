"""Engines: how the sites of a block are trained. `sequential` one after another, `stacked` all at once."""

from hpctrip.learn.engines.choice import ENGINES, EngineChoice, choose

__all__ = ["ENGINES", "EngineChoice", "choose"]
