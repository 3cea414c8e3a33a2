"""Layer 1: the simulated world and the policies. Pure numpy: no torch, no MPI, no HDF5."""
