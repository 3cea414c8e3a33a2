"""Numbers of the pages of results, each computed from rows in docs/results (see audit.py)."""
