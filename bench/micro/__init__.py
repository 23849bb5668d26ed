"""Times of single functions of the hot path."""
