"""Energy counters of this machine, and the settings of its devices."""
