"""Shared parts of the figures, by subject."""
