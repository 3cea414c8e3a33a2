"""Checks the claims of the paper against the runs of studies."""

PAPER = "paper"
"""The study that includes all others of the paper."""
