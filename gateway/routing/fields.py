"""Header fields as routes and keys look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Fields(Protocol):
    """A multidict: names in any case, a value for each line of a name, in order."""

    def getall(self, name: str, default: Sequence[str], /) -> Sequence[str]:
        """All values of a name, or the default."""


def only(values: Sequence[str]) -> str | None:
    """The value if there is one.

    Of several, one origin takes the first and another the last: whoever sends a made-up one
    beside the real one must not be counted, or routed, by either.
    """
    if not values:
        return None
    first = values[0]
    if len(values) > 1 and any(value != first for value in values):
        return None
    return first
