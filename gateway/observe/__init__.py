"""Logs and metrics of a running gateway."""
