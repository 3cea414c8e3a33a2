"""Layer 3: who runs where and how ranks talk. MPI and torch.distributed are each imported in their own file only."""
