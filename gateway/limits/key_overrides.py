"""Limits by key: an in-memory copy of a table of policies.

The reader of the table replaces the whole copy; deciders look up single keys. The numbers are those
of the last successful read.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.limits.throttlex import Numbers


class KeyOverrides:
    """The policies of keys.

    Args:
        normal: converts a key of the table to the identity that requests have, one-to-one.
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
        """Return the identity of a key of the table; see `replace`."""
        identity = self._normal(key)
        return identity.lower() if folds else identity

    def find(self, key: str) -> Numbers | None:
        """Return the numbers for an identity; None if the table has none."""
        return self._numbers.get(key.lower() if self._folds else key)

    def replace(self, numbers: dict[str, Numbers], *, folds: bool) -> None:
        """Replace the copy with the current contents of the table.

        Args:
            numbers: by identity; kept, so the caller must not change it afterwards.
            folds: whether the table's collation ignores case.
        """
        self._numbers = numbers
        self._folds = folds
