"""What the figure scripts share, by subject."""
