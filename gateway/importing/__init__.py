"""Configurations of other systems, turned into ones of this gateway. Pure.

What is read is checked with its places, as our own files are; what has no equal here is said, in
comments and in notes, and never left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.base.errors import Problem
from gateway.config.checking.check import Source


class Imported(NamedTuple):
    """A configuration of this gateway that was another system's.

    Attributes:
        text: the file.
        notes: what is not the same, each with its place in what was read.
    """

    text: str
    notes: Sequence[Problem]


Import = Callable[[Sequence[Source]], Imported]
"""Turns files of another system into one of ours; raises `ConfigError` if they are wrong."""
