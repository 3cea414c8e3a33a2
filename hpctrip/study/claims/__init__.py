"""What the runs of studies say of the claims of the paper."""
