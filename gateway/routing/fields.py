"""Header fields as routes and keys look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Fields(Protocol):
    """A multidict: names in any case, a value for each line of a name, in order."""

    def getall(self, name: str, default: Sequence[str], /) -> Sequence[str]:
        """All values of a name, or the default."""
