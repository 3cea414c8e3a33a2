"""What the figures share, by subject."""
