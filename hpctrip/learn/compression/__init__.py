"""Update compressions: what a site sends for its update. Each in a file of this folder, which is imported whole."""

from hpctrip.base.component import import_all
from hpctrip.learn.compression.base import COMPRESSIONS, Compression, Compressor

__all__ = ["COMPRESSIONS", "Compression", "Compressor"]

import_all(__name__)
