"""Round callbacks, which a run calls after every round. One file each; the package imports them all."""

from hpctrip.app.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.base.component import import_all

__all__ = ["CALLBACKS", "Callback", "RunFacts", "scalars"]

import_all(__name__)
