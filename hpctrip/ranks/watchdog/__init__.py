"""Ends a job whose ranks are stuck: a guardian until all ranks have met, then a watchdog thread in each."""
