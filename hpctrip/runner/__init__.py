"""One run, from its input to its results file: session, main loop, checkpoints, callbacks, cache of trained rounds."""
