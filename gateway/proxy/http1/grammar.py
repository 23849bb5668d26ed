"""The grammar of what upstreams send, exactly as RFC 9112 defines it: no I/O.

A parser that tolerates an error lets in what the next one reads differently. So the only line end
is CR LF, and there are no folded lines (section 5.2), no whitespace around a name (section 5.1)
and no control characters. The patterns never backtrack over what they have matched, so that time
is linear in the size of the input.
"""

from __future__ import annotations

import re
from typing import Final

MAX_FIELDS: Final = 1000
"""Most fields in one head or one trailer section; applications send a tenth of it."""

# Only characters are repeated possessively: before Python 3.11.5, a group that is repeated so keeps
# what its last, failed attempt has consumed.
_STATUS_LINE: Final = rb"HTTP/1\.[01] [1-5][0-9]{2}(?: [\t\x20-\x7e\x80-\xff]*+)?"
_FIELD: Final = rb"\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+"
_FIELDS: Final = rb"(?:%b){0,%d}" % (_FIELD, MAX_FIELDS)
_BEGINNING: Final = b"HTTP/1."

is_head: Final = re.compile(_STATUS_LINE + _FIELDS).fullmatch
"""Match status line and fields, without the end of the last one."""

are_fields: Final = re.compile(_FIELDS).fullmatch
"""Match fields, each after a line end."""

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_PLAIN: Final = rb"[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]*+"
_QUOTED: Final = rb'"%b(?:\\[\t\x20-\x7e\x80-\xff]%b)*"' % (_PLAIN, _PLAIN)
_CHUNK_SIZE: Final = rb"([0-9A-Fa-f]{1,16})"
"""64 bits are enough."""

chunk_line: Final = re.compile(
    _CHUNK_SIZE
    + rb"(?:[\t ]*+;[\t ]*+%b(?:[\t ]*+=[\t ]*+(?:%b|%b))?)*\r\n" % (_TOKEN, _TOKEN, _QUOTED)
).match
"""The size of a chunk and its extensions (RFC 9112, section 7.1.1)."""

request_chunk_line: Final = re.compile(
    _CHUNK_SIZE + rb"(?:;%b(?:=(?:%b|%b))?)*\r\n" % (_TOKEN, _TOKEN, _QUOTED)
).match
"""The same without the whitespace that only recipients must accept: no client sends it, and servers
interpret it differently."""

_flaw: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?=[^\n])|(?<!\r)\n").search


def has_flaw(data: bytes | bytearray, start: int) -> bool:
    """Return whether there is a byte that no line has: a control character, a lone CR or LF.

    Args:
        data: complete lines and the start of one.
        start: where to start looking; the byte before it was checked.
    """
    return _flaw(data, max(start - 1, 0)) is not None


def may_become_head(data: bytes | bytearray, start: int) -> bool:
    """Return whether bytes can still be the start of a head.

    It distinguishes what is not an answer, and would never end, from a slow answer.

    Args:
        data: the bytes so far.
        start: how many of them were found valid before.
    """
    if data[:7] != _BEGINNING[: len(data)] or has_flaw(data, start):
        return False
    end = data.rfind(b"\r\n")
    return end < max(start - 1, 0) or is_head(data, 0, end) is not None
