"""Ranks: transports, placement of sites on hosts, watchdog. MPI and torch.distributed have one file each."""
