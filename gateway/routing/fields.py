"""Header fields as routes and keys see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Fields(Protocol):
    """A multidict: case-insensitive names, one value per line of a name, in order."""

    def getall(self, name: str, default: Sequence[str], /) -> Sequence[str]:
        """Return all values of a name, or the default."""
