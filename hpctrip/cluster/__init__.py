"""One GPU cluster, simulated: the jobs of a trace, scheduled under a budget (after PowerFlow, arXiv 2304.06381)."""
