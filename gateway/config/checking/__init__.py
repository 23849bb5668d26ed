"""Checks a configuration: what is wrong with it, and how to fix it."""
