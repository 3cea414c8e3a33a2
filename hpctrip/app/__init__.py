"""Layer 5: everything meets here and only here: input, experiment, loop, command line."""
