"""Converts configurations of other systems into ones of this gateway. Pure.

Input is checked with positions, like our own files. Settings without an equivalent are reported in
comments and notes, never dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.base.errors import Problem
from gateway.config.checking.check import Source


class Imported(NamedTuple):
    """A configuration converted from another system's.

    Attributes:
        text: the file.
        notes: differences, each with its position in the input.
    """

    text: str
    notes: Sequence[Problem]


Import = Callable[[Sequence[Source]], Imported]
"""Converts files of another system; raises `ConfigError` if they are not valid."""
