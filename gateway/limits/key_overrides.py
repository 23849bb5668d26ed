"""Limits by key: what a table of policies says of each, at hand without asking anybody.

Whoever reads the table puts it here as a whole; whoever decides looks a key up. The numbers are
those of the table at the last look, old ones as long as it cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.limits.throttlex import Numbers


class KeyOverrides:
    """The policies of keys.

    Args:
        normal: makes the identity of a key of the table, one-to-one, as requests have it.
    """

    __slots__ = ("_folds", "_normal", "_numbers")

    def __init__(self, normal: Callable[[str], str]) -> None:
        self._normal = normal
        self._numbers: dict[str, Numbers] = {}
        self._folds = False

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return f"<Book of {len(self)} keys>"

    def identity(self, key: str, *, folds: bool) -> str:
        """The identity of a key of the table; see `replace`."""
        identity = self._normal(key)
        return identity.lower() if folds else identity

    def find(self, key: str) -> Numbers | None:
        """What the table says of an identity; None if it says nothing."""
        return self._numbers.get(key.lower() if self._folds else key)

    def replace(self, numbers: dict[str, Numbers], *, folds: bool) -> None:
        """Take what the table says now.

        Args:
            numbers: by identity; kept, and not to be changed any more.
            folds: whether the table's collation takes capitals for small letters.
        """
        self._numbers = numbers
        self._folds = folds
