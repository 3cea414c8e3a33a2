"""`hpctrip tune`: searches for the settings with which this machine trains a workload fastest or with least energy."""
