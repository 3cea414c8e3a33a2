"""Round callbacks: whom a run tells of its rounds. Each in a file of this folder, which is imported whole."""

from hpctrip.app.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.base.component import import_all

__all__ = ["CALLBACKS", "Callback", "RunFacts", "scalars"]

import_all(__name__)
