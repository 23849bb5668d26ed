"""Finds the rules that match a path, at a cost that does not grow with their number.

Exact paths are one dict lookup. Parameters and prefixes are in a trie of segments. Rules come out
most specific first: exact paths, then parameters compared segment by segment from the left (a
literal before a parameter), then prefixes from the longest to the shortest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from gateway.routing.pattern import PathShape

R = TypeVar("R")


class _TrieNode(Generic[R]):
    """A node of the trie: the patterns that share their first segments.

    Attributes:
        children: child nodes by the next literal segment.
        parameter: the child node for any one segment.
        rules: the rules of patterns that end here.
        prefix_rules: the rules of patterns that cover everything from here down.
        inherited: `prefix_rules` of this node and of all above it, the deepest first; only in a
            trie without parameters.
    """

    __slots__ = ("children", "inherited", "parameter", "prefix_rules", "rules")

    def __init__(self, inherited: tuple[R, ...] = ()) -> None:
        self.children: dict[str, _TrieNode[R]] = {}
        self.parameter: _TrieNode[R] | None = None
        self.rules: tuple[R, ...] = ()
        self.prefix_rules: tuple[R, ...] = ()
        self.inherited = inherited


class PathIndex(Generic[R]):
    """The rules of one host, by path. Immutable.

    Args:
        entries: shapes with their rules. Rules of equal shapes keep their order.
    """

    __slots__ = ("_depth", "_exact", "_has_parameters", "_top")

    def __init__(self, entries: Sequence[tuple[PathShape, R]]) -> None:
        # Paths begin with a slash, so the first of their pieces is empty: the root of the
        # trie is the child of `top` under that piece.
        self._top: _TrieNode[R] = _TrieNode()
        self._top.children[""] = _TrieNode()
        self._depth = 1
        self._has_parameters = any(None in shape.segments for shape, _ in entries)
        exact: dict[str, tuple[R, ...]] = {}
        for shape, rule in entries:
            path = shape.exact_path
            if path is None:
                self._insert(shape, rule)
            else:
                exact[path] = (*exact.get(path, ()), rule)
        _inherit(self._top)
        # The rules that an exact path falls back to are known now as well.
        self._exact: dict[str, tuple[R, ...]] = {}
        fallbacks = {path: self._search(path) for path in exact}
        for path, rules in exact.items():
            self._exact[path] = rules + fallbacks[path]

    def candidates(self, path: str) -> tuple[R, ...]:
        """Return the rules whose shape matches `path`, the most specific first."""
        rules = self._exact.get(path)
        if rules is not None:
            return rules
        if self._has_parameters:
            return self._search(path)
        node = self._top
        for segment in path.split("/", self._depth):
            child = node.children.get(segment)
            if child is None:
                break
            node = child
        return node.inherited

    def _insert(self, shape: PathShape, rule: R) -> None:
        node = self._top.children[""]
        for segment in shape.segments:
            if segment is None:
                if node.parameter is None:
                    node.parameter = _TrieNode()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _TrieNode())
        if shape.is_prefix:
            node.prefix_rules += (rule,)
        else:
            node.rules += (rule,)
        self._depth = max(self._depth, len(shape.segments) + 1)

    def _search(self, path: str) -> tuple[R, ...]:
        """Walk down level by level; each level is ordered, literals before parameters."""
        level = [self._top]
        prefix_rules: tuple[R, ...] = ()
        # Parts deeper than any pattern stay in one last piece, which matches no node.
        for segment in path.split("/", self._depth):
            below: list[_TrieNode[R]] = []
            for node in level:
                child = node.children.get(segment)
                if child is not None:
                    below.append(child)
                if segment and node.parameter is not None:
                    below.append(node.parameter)
            if not below:
                return prefix_rules
            level = below
            for node in reversed(level):
                prefix_rules = node.prefix_rules + prefix_rules
        rules: tuple[R, ...] = ()
        for node in level:
            rules += node.rules
        return rules + prefix_rules


def _inherit(node: _TrieNode[R]) -> None:
    node.inherited = node.prefix_rules + node.inherited
    for child in node.children.values():
        child.inherited = node.inherited
        _inherit(child)
