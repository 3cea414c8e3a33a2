"""The machine itself: what it draws, and the settings of its devices."""
