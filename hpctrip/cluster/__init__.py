"""Simulator of one GPU cluster: schedules the jobs of a trace under a budget (after PowerFlow, arXiv 2304.06381)."""
