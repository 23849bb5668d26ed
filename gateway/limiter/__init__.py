"""Between policies and a store: one decision for each request."""
