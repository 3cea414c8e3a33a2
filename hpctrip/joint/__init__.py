"""Where the two simulated systems meet: sites of a federation that are GPU clusters."""
