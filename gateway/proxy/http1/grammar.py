"""The grammar of what upstreams send, as RFC 9112 has it and nothing beside it: no I/O.

A parser that forgives one thing lets in what the next one reads otherwise. So there is no
line end but CR LF, no folded line (section 5.2), no blank around a name (section 5.1) and no
control character anywhere. The patterns never go back over what they have matched, so that
time is linear in what was sent.
"""

from __future__ import annotations

import re
from typing import Final

MAX_FIELDS: Final = 1000
"""Fields of one head or one trailer section; what applications send is a tenth of it."""

_STATUS_LINE: Final = rb"HTTP/1\.[01] [1-5][0-9]{2}(?: [\t\x20-\x7e\x80-\xff]*+)?+"
_FIELD: Final = rb"\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+"
_FIELDS: Final = rb"(?:%b){0,%d}+" % (_FIELD, MAX_FIELDS)
_BEGINNING: Final = b"HTTP/1."

is_head: Final = re.compile(_STATUS_LINE + _FIELDS).fullmatch
"""Whether bytes are status line and fields, without what ends the last of them."""

are_fields: Final = re.compile(_FIELDS).fullmatch
"""Whether bytes are fields, each behind a line end."""

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED: Final = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*+"'
_CHUNK_SIZE: Final = rb"([0-9A-Fa-f]{1,16})"
"""64 bits are enough."""

chunk_line: Final = re.compile(
    _CHUNK_SIZE
    + rb"(?:[\t ]*+;[\t ]*+%b(?:[\t ]*+=[\t ]*+(?:%b|%b))?+)*+\r\n" % (_TOKEN, _TOKEN, _QUOTED)
).match
"""The size of a chunk and its extensions (RFC 9112, section 7.1.1)."""

request_chunk_line: Final = re.compile(
    _CHUNK_SIZE + rb"(?:;%b(?:=(?:%b|%b))?+)*+\r\n" % (_TOKEN, _TOKEN, _QUOTED)
).match
"""The same without the blanks that only recipients must know: no client sends them, and other
servers differ in what they make of them."""

_flaw: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?=[^\n])|(?<!\r)\n").search


def has_flaw(data: bytes | bytearray, start: int) -> bool:
    """Whether there is what no line has: a control character, CR or LF on its own.

    Args:
        data: whole lines and the beginning of one.
        start: where to begin to look; the byte before it was looked at.
    """
    return _flaw(data, max(start - 1, 0)) is not None


def may_become_head(data: bytes | bytearray, start: int) -> bool:
    """Whether bytes can still be the beginning of a head.

    It tells what is no answer at all, and would never end, from one that is slow.

    Args:
        data: what is there so far.
        start: how much of it was found good before.
    """
    if data[:7] != _BEGINNING[: len(data)] or has_flaw(data, start):
        return False
    end = data.rfind(b"\r\n")
    return end < max(start - 1, 0) or is_head(data, 0, end) is not None
