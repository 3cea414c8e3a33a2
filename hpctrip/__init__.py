"""PowerTrip: train real models over virtual, power-limited datacenter sites and tell how long it took.

Importing the package starts neither MPI nor CUDA; see hpctrip/DESIGN.md for the layers.
"""

__version__ = "0.2.0.dev0"
