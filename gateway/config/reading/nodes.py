"""Values with their positions in the file.

There are three kinds of node, as in YAML. `find` follows a path to its position, and `plain` turns
nodes into the data that models read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gateway.base.errors import Problem
from gateway.config.values.findings import KEY, Path
from gateway.config.values.redaction import Secrets, redact_line

_MAX_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class Document:
    """One file: its name as the user gave it, and its lines."""

    file: str
    lines: list[str]

    def around(self, number: int, column: int) -> tuple[str, int]:
        """Return the text of a line around a column, with passwords in URLs masked.

        Args:
            number: the line number, counted from 1.
            column: counted from 1.

        Returns:
            The text, and the column at which it begins.
        """
        if not 1 <= number <= len(self.lines):
            return "", 1
        begin = 0 if column <= _MAX_SHOWN * 3 // 4 else column - 1 - _MAX_SHOWN // 2
        return redact_line(self.lines[number - 1])[begin : begin + _MAX_SHOWN].rstrip(), begin + 1


class FilePlace(NamedTuple):
    """A position in a file; line and column are counted from 1."""

    document: Document
    line: int
    column: int

    def problem(self, message: str, hint: str = "", path: str = "") -> Problem:
        """A mistake at this position, with the line for display."""
        source, source_column = self.document.around(self.line, self.column)
        return Problem(
            file=self.document.file,
            line=self.line,
            column=self.column,
            path=path,
            message=message,
            hint=hint,
            source=source,
            source_column=source_column,
        )


@dataclass(slots=True)
class ScalarNode:
    """A single value.

    Attributes:
        value: None, bool, int, float or str.
        place: its beginning, after an opening quote.
        is_verbatim: whether columns inside the value are also columns of the file.
        is_secret: whether it came from a secret file and must not be shown. A URL with a password
            is not secret: messages about URLs omit the password.
        is_broken: whether it could not be read; the problem is already recorded.
        written: the text in the file, without quotes.
        secrets: the parts that must not be shown.
        is_plain: whether it is unquoted in the file, and may be a number.
    """

    value: object
    place: FilePlace
    is_verbatim: bool = False
    is_secret: bool = False
    is_broken: bool = False
    size: int = 1
    written: str = ""
    secrets: Secrets | None = None
    is_plain: bool = False


class Member(NamedTuple):
    """An entry of a mapping: the position of its key, and its value."""

    key: FilePlace
    node: Node


@dataclass(slots=True)
class MappingNode:
    """A mapping; `size` counts all values in it, with aliases expanded."""

    place: FilePlace
    members: dict[str, Member] = field(default_factory=dict)
    size: int = 1


@dataclass(slots=True)
class SequenceNode:
    """A list; `size` as in `MappingNode`."""

    place: FilePlace
    items: list[Node] = field(default_factory=list)
    size: int = 1


Node = ScalarNode | MappingNode | SequenceNode


class FoundNode(NamedTuple):
    """The end of a path: its node, the position to point at, and its path as written.

    Attributes:
        node: the node, or the last existing one on the way.
        place: where the node begins.
        key: where the key or list entry that holds the node begins.
        path: the path up to `node`.
        is_broken: whether a node on the way could not be read.
    """

    node: Node
    place: FilePlace
    key: FilePlace
    path: Path
    is_broken: bool


def find(root: Node, path: Path) -> FoundNode:
    """Follow a path as far as it exists.

    A short form lacks some nodes of the long one (a single limit is the first of a list), so
    missing parts are skipped.
    """
    node, place, key = root, root.place, root.place
    walked: list[str | int] = []
    is_broken = False
    for part in path:
        if part == KEY:
            place = key
        elif isinstance(node, MappingNode):
            name = _name_of(node, part)
            if name is None and isinstance(part, str):
                break
            if name is None:
                continue
            member = node.members[name]
            walked.append(name)
            node, place, key = member.node, member.node.place, member.key
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            walked.append(part)
            place = key = node.place
        if isinstance(node, ScalarNode) and node.is_broken:
            is_broken = True
    return FoundNode(node, place, key, tuple(walked), is_broken)


def node_of(data: object, name: str) -> Node:
    """Return nodes for data that has no text: their only position is `name`."""
    place = FilePlace(Document(name, []), 0, 0)
    if isinstance(data, Mapping):
        members = {str(key): Member(place, node_of(value, name)) for key, value in data.items()}
        return MappingNode(place, members)
    if isinstance(data, list | tuple):
        return SequenceNode(place, [node_of(item, name) for item in data])
    return ScalarNode(data, place)


def scalars(node: Node, path: Path = ()) -> Iterator[tuple[Path, ScalarNode]]:
    """Yield each scalar with its path; aliased values under each of their paths."""
    if isinstance(node, ScalarNode):
        yield path, node
    elif isinstance(node, MappingNode):
        for name, member in node.members.items():
            yield from scalars(member.node, (*path, name))
    else:
        for index, item in enumerate(node.items):
            yield from scalars(item, (*path, index))


def plain(node: Node) -> Any:
    """Return the data without positions. Nodes that occur several times share their data."""
    return _plain(node, {})


def show_path(path: Path) -> str:
    """Return a path for display: `routes./v1/pay.limits[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]" if part != KEY else ""
        else:
            text += f".{part}" if text else part
    return text


def _name_of(node: MappingNode, part: str | int) -> str | None:
    if not isinstance(part, str):
        return None
    if part in node.members:
        return part
    return "limit" if part == "limits" and "limit" in node.members else None


def _plain(node: Node, done: dict[int, Any]) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if id(node) not in done:
        if isinstance(node, MappingNode):
            done[id(node)] = {k: _plain(member.node, done) for k, member in node.members.items()}
        else:
            done[id(node)] = [_plain(item, done) for item in node.items]
    return done[id(node)]
