"""Header lines of HTTP/1.1 and fields of HTTP/2, from one to the other (pure).

What serves requests reads and writes heads as HTTP/1.1 has them. Applications repeat themselves, so
the lines seen last are cached.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Field = tuple[bytes, bytes]

_is_line: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*").fullmatch

_ONE_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
"""What no message of HTTP/2 has (RFC 9113, section 8.2.2)."""

_known_lines: dict[bytes, Field | None] = {}
_KNOWN_MAX: Final = 4096
_KNOWN_MAX_BYTES: Final = 128


def response_fields(head: bytes) -> tuple[int, list[Field]]:
    """Return the status and the fields of a response, from its head as HTTP/1.1 writes it.

    Args:
        head: status line and header lines, without the empty line.
    """
    lines = head.split(b"\r\n")
    status = lines[0][9:12]
    fields = [(b":status", status)]
    _add_fields(fields, lines)
    return int(status), fields


def request_fields(head: bytes, scheme: bytes) -> list[Field]:
    """Return the fields of a request, from its head as HTTP/1.1 writes it.

    Args:
        head: request line and header lines, without the empty line; `Host` is among them.
        scheme: `http` or `https`.
    """
    lines = head.split(b"\r\n")
    method, target, _ = lines[0].split(b" ")
    rest: list[Field] = []
    _add_fields(rest, lines)
    fields = [(b":method", method), (b":scheme", scheme)]
    for field in rest:
        if field[0] == b"host":
            # What a server of HTTP/2 reads in its place (RFC 9113, section 8.3.1).
            fields.append((b":authority", field[1]))
            rest.remove(field)
            break
    fields.append((b":path", target))
    return fields + rest


def trailer_fields(lines: bytes) -> list[Field]:
    """Return the fields of a trailer section, from lines with their line ends."""
    return [field for line in lines.split(b"\r\n") if (field := _field(line)) is not None]


def answer_lines(fields: Sequence[Field]) -> bytes:
    """Return the head of an answer as HTTP/1.1 writes it, without the empty line.

    Args:
        fields: as the framing has accepted them: `:status` first, and no others of its kind.
    """
    lines = [b"%b: %b" % field for field in fields[1:]]
    return b"\r\n".join((b"HTTP/1.1 %b " % fields[0][1], *lines))


def trailer_section(fields: Sequence[Field]) -> bytes:
    """Return the fields of a trailer section, each after a line end."""
    return b"".join([b"\r\n%b: %b" % field for field in fields])


def _add_fields(fields: list[Field], lines: list[bytes]) -> None:
    for line in lines[1:]:
        field = _known_lines[line] if line in _known_lines else _field(line)
        if field is not None:
            fields.append(field)


def _field(line: bytes) -> Field | None:
    """Return the field of a line; None if it has no place in HTTP/2."""
    field: Field | None = None
    if _is_line(line):
        name, _, value = line.partition(b":")
        name = name.lower()
        if name not in _ONE_HOP:
            field = (name, value.strip(b" \t"))
    if len(line) <= _KNOWN_MAX_BYTES:
        if len(_known_lines) >= _KNOWN_MAX:
            _known_lines.clear()
        _known_lines[line] = field
    return field
