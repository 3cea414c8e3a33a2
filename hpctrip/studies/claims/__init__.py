"""What the runs of studies say of the claims of the paper."""

PAPER = "paper"
"""The study that includes all others of the paper."""
