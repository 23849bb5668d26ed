"""Counts in this process."""
