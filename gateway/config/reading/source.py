"""Parses YAML text into nodes with positions.

It accepts a strict and safe subset: scalars as in the core schema of YAML 1.2 (`on`, `no`, `1:30`
and dates are text), keys are unique text, no tags, one document. Aliases and merge keys are counted
before they are followed, and depth and number of values are bounded, so that no file uses excessive
memory. Problems are collected, and the valid parts are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Final, NoReturn

import yaml

from gateway.base.errors import Problem
from gateway.config.reading.nodes import (
    Document,
    FilePlace,
    MappingNode,
    Member,
    Node,
    ScalarNode,
    SequenceNode,
    show_path,
)
from gateway.config.reading.substitute import ReadSecret, SubstitutionError, substitute
from gateway.config.reading.syntax import explain_syntax
from gateway.config.values.redaction import Secrets
from gateway.config.values.written import remember

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_TEXT: Final = 64 << 10
MAX_VALUES: Final = 200_000
MAX_ALIASED: Final = 100_000
MAX_SHOWN: Final = 6
"""Parts of a path that are shown; valid configurations are not nested deeper."""

_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_NOT_PRINTABLE: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
# YAML 1.2.2, section 10.3.2.
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,40}")
_OTHER_BASE: Final = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,3})?"
)

_BASE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def resolve(text: str) -> object:
    """Return the value of an unquoted scalar; infinities (1e999) and not-a-number stay text."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and isfinite(number := float(text)):
        return number
    return text


def read(
    file: str,
    content: bytes,
    environ: Mapping[str, str] | None,
    read_secret: ReadSecret,
    secrets: Secrets,
) -> tuple[Node | None, list[Problem]]:
    """Read one file.

    Args:
        file: its name, for messages.
        content: its bytes.
        environ: the variables that values may refer to; with None, `${` is literal text.
        read_secret: returns the text of a file that a value refers to.
        secrets: receives the secrets in keys; values have their own.

    Returns:
        The root, or None if there is none, and all problems.
    """
    if len(content) > MAX_BYTES:
        size = f"the file is larger than {MAX_BYTES >> 20} MiB"
        return None, [Problem(file, 0, 0, "", size, "split it into a folder of files")]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        document = Document(file, _LINE_BREAK.split(before))
        place = FilePlace(document, len(document.lines), len(document.lines[-1]) + 1)
        message = f"byte 0x{content[error.start]:02x} is not UTF-8"
        return None, [place.problem(message, "save the file as UTF-8")]
    reader = _Reader(Document(file, _LINE_BREAK.split(text)), environ, read_secret, secrets)
    return reader.read(text), reader.problems


def _secrets_of(text: str, filled: str = "", found: Iterable[str] = ()) -> Secrets | None:
    """Return what must not be shown of a value, before and after references are replaced."""
    if "://" not in text and "://" not in filled and not found:
        return None
    secrets = Secrets()
    for url in (text, filled):
        secrets.add_from_url(url)
    for secret in found:
        secrets.add(secret)
    return secrets


class _Stop(Exception):
    """The rest of this file cannot be read; the problem is recorded."""


class _Reader:
    """Builds nodes from the events of a YAML parser; recursion is bounded by `MAX_DEPTH`."""

    def __init__(
        self,
        document: Document,
        environ: Mapping[str, str] | None,
        read_secret: ReadSecret,
        secrets: Secrets,
    ) -> None:
        self.document = document
        self.environ = environ
        self.read_secret = read_secret
        self.secrets = secrets
        self.problems: list[Problem] = []
        self._anchors: dict[str, Node] = {}
        self._open_anchors: set[str] = set()
        self._path: list[str | int] = []
        self._values = 0
        self._aliased = 0
        self._events: Iterator[Any] = iter(())

    def read(self, text: str) -> Node | None:
        odd = _NOT_PRINTABLE.search(text)
        if odd:
            lines = _LINE_BREAK.split(text[: odd.start()])
            place = FilePlace(self.document, len(lines), len(lines[-1]) + 1)
            message = f"the character U+{ord(odd.group()):04X} is not allowed in YAML"
            self.problems.append(place.problem(message, "write it as an escape in double quotes"))
            return None
        self._events = iter(yaml.parse(text, Loader=_BASE_LOADER))
        try:
            return self._document()
        except _Stop:
            return None
        except yaml.MarkedYAMLError as error:
            self._note_syntax(error)
            return None

    # Structure.

    def _document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    place = self._place(event.start_mark)
                    self._stop(
                        place, "a second document begins here", "write one document per file"
                    )
                root = self._node(next(self._events), 0)
        if root is None or (isinstance(root, ScalarNode) and root.value is None):
            message = "the file is empty"
            hint = "for example routes: {/**: {upstream: http://127.0.0.1:9000}}"
            self.problems.append(Problem(self.document.file, 0, 0, "", message, hint))
            return None
        return root

    def _node(self, event: Any, depth: int) -> Node:
        place = self._place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), place)
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop(place, f"more than {MAX_VALUES} values", "split the file")
        if depth > MAX_DEPTH:
            self._stop(
                place,
                f"nested more than {MAX_DEPTH} deep",
                "no valid configuration is nested so deep",
            )
        if event.tag and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"the tag {tag!r} is not supported"
            self._note(place, message, "remove it; quote text")
        anchor = event.anchor
        if anchor:
            self._open_anchors.add(anchor)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, place)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(place, depth)
        else:
            node = self._mapping(place, depth)
        if anchor:
            self._open_anchors.discard(anchor)
            self._anchors[anchor] = node
        return node

    def _sequence(self, place: FilePlace, depth: int) -> SequenceNode:
        node = SequenceNode(place)
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            self._path.append(len(node.items))
            item = self._node(event, depth + 1)
            self._path.pop()
            node.items.append(item)
            node.size += item.size
        return node

    def _mapping(self, place: FilePlace, depth: int) -> MappingNode:
        node = MappingNode(place)
        merges: list[tuple[FilePlace, Node]] = []
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key_place = self._place(event.start_mark)
            key = self._key(event, key_place, depth)
            if key is None:
                self._node(next(self._events), depth + 1)
                continue
            self._path.append(key)
            value = self._node(next(self._events), depth + 1)
            self._path.pop()
            # A quoted key is like any other.
            if key == "<<" and not event.style:
                merges.append((key_place, value))
            elif key in node.members:
                first = node.members[key].key
                message = f"{key!r} is given twice; the first is in line {first.line}"
                self._note(key_place, message, "remove one of the two")
            else:
                node.members[key] = Member(key_place, value)
                node.size += value.size
        for key_place, value in merges:
            self._merge(node, key_place, value)
        return node

    def _key(self, event: Any, place: FilePlace, depth: int) -> str | None:
        if not isinstance(event, yaml.ScalarEvent):
            self._node(event, depth + 1)
            hint = "quote it if it begins with { or ["
            self._note(place, "a key must be plain text", hint)
            return None
        if event.anchor:
            self._anchors[event.anchor] = ScalarNode(event.value, place)
        key = str(event.value)
        self.secrets.add_from_url(key)
        if "${" in key:
            hint = "use variables in values only"
            self._note(place, f"a variable in the key {key!r}", hint)
        return key

    def _alias(self, anchor: str, place: FilePlace) -> Node:
        node = self._anchors.get(anchor)
        if node is None:
            if anchor in self._open_anchors:
                self._stop(
                    place,
                    f"*{anchor} is inside the value that it repeats",
                    "the result would be infinite",
                )
            self._stop(place, f"the alias *{anchor} has no anchor &{anchor} before it")
        self._count_aliased(node.size, place)
        return node

    def _merge(self, node: MappingNode, place: FilePlace, value: Node) -> None:
        parts = value.items if isinstance(value, SequenceNode) else [value]
        for part in parts:
            if not isinstance(part, MappingNode):
                message = "<< takes a mapping, or a list of mappings"
                self._note(place, message, "for example <<: *base")
                continue
            self._count_aliased(len(part.members), place)
            for key, member in part.members.items():
                if key not in node.members:
                    node.members[key] = member
                    node.size += member.node.size

    def _count_aliased(self, size: int, place: FilePlace) -> None:
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            message = f"aliases expand to more than {MAX_ALIASED} values"
            self._stop(place, message, "use fewer aliases")

    # Scalars.

    def _scalar(self, event: Any, place: FilePlace) -> ScalarNode:
        is_plain = event.style in {None, ""}
        is_one_line = event.start_mark.line == event.end_mark.line
        if not is_plain and event.style in {"'", '"'}:
            place = place._replace(column=place.column + 1)
        text = event.value
        is_verbatim = is_one_line and (
            is_plain or self.document.lines[place.line - 1].startswith(text, place.column - 1)
        )
        if len(text) > MAX_TEXT:
            self._note(place, f"a value of more than {MAX_TEXT >> 10} KiB", "use a shorter one")
            return ScalarNode(None, place, is_broken=True)
        secrets = _secrets_of(text)
        if self.environ is None or "${" not in text:
            value = remember(resolve(text), text) if is_plain else text
            return ScalarNode(
                value, place, is_verbatim, written=text, secrets=secrets, is_plain=is_plain
            )
        try:
            filled, is_secret, found = substitute(text, self.environ, self.read_secret)
        except SubstitutionError as error:
            at = place._replace(column=place.column + error.offset) if is_verbatim else place
            hide = secrets.hide if secrets else str
            self._note(at, hide(error.message), hide(error.hint))
            return ScalarNode(None, place, is_broken=True)
        secrets = _secrets_of(text, filled, found)
        value = resolve(filled) if is_plain else filled
        value = filled if isinstance(value, str) else remember(value, text, filled)
        return ScalarNode(value, place, is_secret=is_secret, written=text, secrets=secrets)

    # Positions and problems.

    def _place(self, mark: Any) -> FilePlace:
        return FilePlace(self.document, mark.line + 1, mark.column + 1)

    def _note(self, place: FilePlace, message: str, hint: str) -> None:
        self.problems.append(place.problem(message, hint, show_path(tuple(self._path[:MAX_SHOWN]))))

    def _stop(self, place: FilePlace, message: str, hint: str = "") -> NoReturn:
        self._note(place, message, hint)
        raise _Stop

    def _note_syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark: Any = error.problem_mark or error.context_mark
        begin: Any = error.context_mark or mark
        syntax = explain_syntax(
            self.document.lines,
            (mark.line, mark.column),
            str(error.problem),
            str(error.context),
            (begin.line, begin.column),
        )
        place = FilePlace(self.document, syntax.line + 1, syntax.column + 1)
        self.problems.append(place.problem(syntax.message, syntax.hint))
