"""Decisions per second of the limiter by itself, store by store, beside its rivals."""
