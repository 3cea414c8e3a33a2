"""Constants that a paper does not state, fitted to the bars of one of its figures."""
