"""Find the rule of a domain for a descriptor: a tree of its keys and values.

Look-ups work as in Envoy's own service: entry by entry, as deep as the descriptor is. A literal
value comes before a pattern with `*`, patterns come in the order in which they were added, and `*`
alone, for any value, comes last. There is no backtracking: once a literal value matches, its
siblings are not searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ANY: Final = "*"

Entry = tuple[str, str]
"""A key of a descriptor and its value."""


class _TreeNode(Generic[T]):
    """The nodes below the entries that led here, and the value for exactly these entries."""

    __slots__ = ("any", "patterns", "value", "written")

    def __init__(self) -> None:
        self.written: dict[Entry, _TreeNode[T]] = {}
        self.patterns: dict[str, list[tuple[str, Sequence[str], _TreeNode[T]]]] = {}
        self.any: dict[str, _TreeNode[T]] = {}
        self.value: T | None = None

    def below(self, key: str, wanted: str) -> _TreeNode[T]:
        """Return the node for one more entry; create it if there is none."""
        if wanted == ANY:
            return self.any.setdefault(key, _TreeNode())
        if ANY not in wanted:
            return self.written.setdefault((key, wanted), _TreeNode())
        patterns = self.patterns.setdefault(key, [])
        for text, _, node in patterns:
            if text == wanted:
                return node
        made: _TreeNode[T] = _TreeNode()
        patterns.append((wanted, wanted.split(ANY), made))
        return made


class Tree(Generic[T]):
    """Values by descriptor."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _TreeNode[T] = _TreeNode()

    def add(self, match: Iterable[Entry], value: T) -> None:
        """Store a value under the keys of a descriptor, each with a value or a pattern.

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
        """Return the value for a descriptor; None if there is none for exactly these keys."""
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
    """Return whether a value matches a pattern.

    Args:
        value: the value.
        parts: the pattern, split at its stars, of which it has at least one; each matches any
            text, including an empty one.
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
