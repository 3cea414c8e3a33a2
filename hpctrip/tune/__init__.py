"""`tune`: the settings under which this machine trains this workload fastest, and on the least energy."""
