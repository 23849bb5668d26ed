"""Which rule of a domain a descriptor is held to: a tree of its keys and values.

As Envoy's own service looks them up: entry by entry, as deep as the descriptor is. A value that
is written comes before a pattern with `*`, patterns come in the order in which they were added,
and `*` alone, for any value, comes last. There is no way back: where a written value leads, what
its neighbours hold is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ANY: Final = "*"

Entry = tuple[str, str]
"""A key of a descriptor and its value."""


class _Node(Generic[T]):
    """What is below the entries that led here, and the value for these entries alone."""

    __slots__ = ("any", "patterns", "value", "written")

    def __init__(self) -> None:
        self.written: dict[Entry, _Node[T]] = {}
        self.patterns: dict[str, list[tuple[str, Sequence[str], _Node[T]]]] = {}
        self.any: dict[str, _Node[T]] = {}
        self.value: T | None = None

    def below(self, key: str, wanted: str) -> _Node[T]:
        """The node for one more entry, made if there is none."""
        if wanted == ANY:
            return self.any.setdefault(key, _Node())
        if ANY not in wanted:
            return self.written.setdefault((key, wanted), _Node())
        patterns = self.patterns.setdefault(key, [])
        for text, _, node in patterns:
            if text == wanted:
                return node
        made: _Node[T] = _Node()
        patterns.append((wanted, wanted.split(ANY), made))
        return made


class Tree(Generic[T]):
    """Values by the descriptors that they are for."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, match: Iterable[Entry], value: T) -> None:
        """Put a value under the keys of a descriptor, each with a value or a pattern.

        Raises:
            ValueError: there is one already.
        """
        node = self._root
        for key, wanted in match:
            node = node.below(key, wanted)
        if node.value is not None:
            raise ValueError("two values have the same match")
        node.value = value

    def find(self, entries: Iterable[Entry]) -> T | None:
        """The value for a descriptor; None if there is none for just these keys."""
        node = self._root
        for entry in entries:
            found = node.written.get(entry)
            if found is None:
                key, value = entry
                if node.patterns:
                    for _, parts, below in node.patterns.get(key, ()):
                        if is_like(value, parts):
                            found = below
                            break
                if found is None:
                    found = node.any.get(key)
                    if found is None:
                        return None
            node = found
        return node.value


def is_like(value: str, parts: Sequence[str]) -> bool:
    """Whether a value is like a pattern.

    Args:
        value: the value.
        parts: the pattern, split at its stars, of which it has at least one; each stands for any
            text, and for none.
    """
    first, *middle, last = parts
    if not value.startswith(first):
        return False
    end = len(value) - len(last)
    at = len(first)
    if end < at or not value.endswith(last):
        return False
    for part in middle:
        at = value.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
