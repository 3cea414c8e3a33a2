"""Power traces in the layout of Google's PowerData2019: files, and a synthetic month for those who have no copy."""
