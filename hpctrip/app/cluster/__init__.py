"""A simulated cluster from an input to a results file, and back."""
