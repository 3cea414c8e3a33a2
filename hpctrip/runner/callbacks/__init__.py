"""Round callbacks, which a run calls after every round. One file each; the package imports them all."""

from hpctrip.config.component import import_all
from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts, scalars

__all__ = ["CALLBACKS", "Callback", "RunFacts", "scalars"]

import_all(__name__)
