"""The one error of the benchmark: something needed for a figure is missing or misbehaves."""

from __future__ import annotations


class BenchError(Exception):
    """A program is missing, does not start, or does not do the job it is measured at."""
