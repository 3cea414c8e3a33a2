"""Update compressions: what a site sends for its update. Every module of this folder is imported, as policies are."""

import importlib
import pkgutil

from hpctrip.learn.compression.base import COMPRESSIONS, Compression, Compressor

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["COMPRESSIONS", "Compression", "Compressor"]
