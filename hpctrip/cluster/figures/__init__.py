"""Figures of the simulated GPU cluster."""
