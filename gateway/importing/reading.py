"""Reads nodes of another system's file, and records each mistake with its position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.base.errors import ConfigError, Problem
from gateway.config.checking.check import Source
from gateway.config.checking.messages import did_you_mean
from gateway.config.reading.nodes import FilePlace, MappingNode, Node, ScalarNode, SequenceNode
from gateway.config.reading.source import read
from gateway.config.values.redaction import Secrets
from gateway.config.values.types import describe
from gateway.importing.yaml11 import value_of


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """By position; files in the order in which they first occur."""
    files = {one.file: at for at, one in reversed([*enumerate(problems)])}
    return sorted(problems, key=lambda one: (files[one.file], one.line, one.column))


class Reading:
    """A reader that collects problems.

    Attributes:
        problems: what makes the file unusable.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def wrong(self, place: FilePlace, message: str, hint: str = "") -> None:
        """Record a problem."""
        self.problems.append(place.problem(message, hint))

    def end(self) -> None:
        """Raise `ConfigError` if there was any problem."""
        if self.problems:
            raise ConfigError(in_order(self.problems))

    def root(self, source: Source) -> MappingNode | None:
        """Return the content of a file; a `${` in it is literal text."""
        # Without references, no file can be named.
        root, problems = read(source.file, source.content, None, str, Secrets())
        self.problems += problems
        return self.mapping(root, "a mapping") if root is not None else None

    def mapping(self, node: Node, what: str) -> MappingNode | None:
        """Return a mapping, or record a problem; `what` says what was expected."""
        if isinstance(node, MappingNode):
            return node
        self._expected(node, what)
        return None

    def items(self, node: Node | None, what: str) -> Iterator[MappingNode]:
        """Return the mappings of a list, each of which is `what`; none if the key is missing."""
        if node is None or is_nothing(node):
            return
        if not isinstance(node, SequenceNode):
            hint = "put a - before each" if isinstance(node, MappingNode) else ""
            self._expected(node, "a list", hint)
            return
        for item in node.items:
            found = self.mapping(item, what)
            if found is not None:
                yield found

    def text(self, node: Node | None) -> str:
        """Return text as it is written; empty if the key is missing."""
        if node is None or is_nothing(node):
            return ""
        # The service refuses numbers with a fraction everywhere.
        if not isinstance(node, ScalarNode) or isinstance(value_of(node), float):
            self._expected(node, "text")
            return ""
        return node.value if isinstance(node.value, str) else node.written

    def needed(self, node: Node | None, place: FilePlace, message: str, hint: str) -> str:
        """Return required text; if it is missing, record a problem at that position."""
        if node is None or is_nothing(node) or (isinstance(node, ScalarNode) and node.value == ""):
            self.wrong(place, message, hint)
        return self.text(node)

    def switch(self, node: Node | None) -> bool:
        """Return true or false; false if the key is missing."""
        if node is None or is_nothing(node):
            return False
        value = value_of(node) if isinstance(node, ScalarNode) else None
        if isinstance(value, bool):
            return value
        self._expected(node, "true or false")
        return False

    def whole_number(self, node: Node, most: int) -> int:
        """Return a whole number from 0 to a maximum."""
        value = value_of(node) if isinstance(node, ScalarNode) else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        self._expected(node, f"a whole number from 0 to {most}")
        return 0

    def only(self, node: MappingNode, known: Sequence[str], others: Sequence[str]) -> None:
        """See that a mapping has no keys but these.

        Args:
            node: the mapping.
            known: the keys that belong there.
            others: those that belong somewhere else in the file.
        """
        for key, member in node.members.items():
            if key in known:
                continue
            hint = did_you_mean(key, known, f"known keys: {', '.join(known)}")
            if key in others:
                self.wrong(member.key, f"{key} does not belong here", hint)
            else:
                self.wrong(member.key, f"unknown key {key!r}", hint)

    def _expected(self, node: Node, what: str, hint: str = "") -> None:
        if isinstance(node, ScalarNode) and node.is_broken:
            return
        found = node.value if isinstance(node, ScalarNode) else node
        kinds = {MappingNode: "a mapping", SequenceNode: "a list"}
        shown = kinds.get(type(node)) or describe(found)
        self.wrong(node.place, f"found {shown}, {what} was expected", hint)


def member(node: MappingNode, key: str) -> Node | None:
    """Return the value of a key, if the mapping has it."""
    found = node.members.get(key)
    return found.node if found is not None else None


def is_nothing(node: Node) -> bool:
    """Return whether a key has no value."""
    return isinstance(node, ScalarNode) and node.value is None and not node.is_broken
