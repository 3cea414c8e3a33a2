"""The reproduction of the PowerTrip paper (arXiv 2507.17904): its claims, checked against the tables of studies."""
