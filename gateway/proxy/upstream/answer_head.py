"""The head of an answer, and its part for the client: no I/O, bytes in and bytes out.

Fields keep their order, case, repetition and bytes, except hop-by-hop fields, which `head` lists.
Ambiguous heads are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gateway.base.errors import UpstreamProtocolError
from gateway.proxy.head import CONNECTION, DATE, LENGTH, PASS, TRANSFER, connection_options, kind_of
from gateway.proxy.http1.grammar import is_head

_NOT_IN_TRAILERS: Final = frozenset(
    {
        b"age",
        b"authorization",
        b"cache-control",
        b"content-encoding",
        b"content-range",
        b"content-type",
        b"cookie",
        b"expires",
        b"location",
        b"pragma",
        b"range",
        b"retry-after",
        b"set-cookie",
        b"vary",
        b"via",
        b"warning",
        b"www-authenticate",
    }
)
KNOWN_MAX: Final = 4096
"""Most bytes in a cached head: longer ones would fill memory."""
LONGEST_LENGTH: Final = 19
"""Most digits in `Content-Length`: no real body needs more, and 64 bits hold it."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The head of an upstream's answer, ready to be passed on.

    Attributes:
        status_line: `HTTP/1.1`, status and reason, without a line end.
        fields: the end-to-end header lines, each after a line end. They include `Content-Length`
            if there is one.
        length: what `Content-Length` says; None if there is none.
        is_chunked: whether the body is in chunks.
        has_date: whether `Date` is among the fields.
        status: the status code.
        keeps_alive: whether the connection may carry another exchange.
        announced: the `Trailer` field of a body in chunks, after a line end; empty if it
            names nothing.
        tells_limits: whether the fields include any of the upstream's own limits.
    """

    status_line: bytes
    fields: bytes
    length: int | None
    is_chunked: bool
    has_date: bool
    status: int
    keeps_alive: bool
    announced: bytes
    tells_limits: bool = False


_special_fields: Final = re.compile(
    rb"\r\n((?i:connection|keep-alive|proxy-connection|proxy-authenticate|proxy-authorization|te"
    rb"|trailer|upgrade|http2-settings|content-length|transfer-encoding|date"
    rb"|(?:x-)?ratelimit(?:-[^:]*)?)):[ \t]*([^\r\n]*)"
).finditer

_trailer_fields: Final = re.compile(rb"\r\n(?i:trailer):[ \t]*([^\r\n]*)").finditer


def read_answer_head(block: bytes) -> AnswerHead:
    """Read the head of an answer.

    Args:
        block: everything before the empty line.

    Raises:
        UpstreamProtocolError: it is not the head of an HTTP/1 answer, or `Content-Length` or
            `Transfer-Encoding` are ambiguous.
    """
    if not is_head(block):
        raise UpstreamProtocolError("not the head of an answer")
    first = block.partition(b"\r\n")[0]
    pieces: list[bytes] = []
    end = len(first)
    length: int | None = None
    is_chunked = has_date = tells_limits = False
    canonical = b""
    options: list[bytes] = []
    for match in _special_fields(block):
        kind = kind_of(match[1])
        value = match[2].rstrip(b" \t")
        if kind in (DATE, PASS):
            has_date = has_date or kind == DATE
            tells_limits = tells_limits or kind == PASS
            continue
        if kind == LENGTH:
            length = _read_length(value, length)
            canonical = b"\r\nContent-Length: %d" % length
            if canonical.endswith(b" " + value):
                continue
        elif kind == TRANSFER:
            if is_chunked or value.lower() != b"chunked":
                raise UpstreamProtocolError("a transfer coding that is not known")
            is_chunked = True
        elif kind == CONNECTION:
            options.append(value)
        pieces.append(block[end : match.start()])
        end = match.end()
        if kind == LENGTH:
            pieces.append(canonical)
    is_http_1_0 = first.startswith(b"HTTP/1.0")
    if is_chunked and (is_http_1_0 or length is not None):
        # RFC 9112, section 6.1: HTTP/1.0 has no chunks, and they exclude a length.
        raise UpstreamProtocolError("framing that is not certain")
    pieces.append(block[end:])
    fields = b"".join(pieces)
    named = connection_options(options)
    if named:
        lines = fields.split(b"\r\n")
        fields = b"\r\n".join(
            line for line in lines if line.partition(b":")[0].lower() not in named
        )
    return AnswerHead(
        # `HTTP/1.1 200 OK`: the version is the gateway's, not the upstream's; and the space after
        # the code is required, unlike the reason (RFC 9112, section 4).
        b"HTTP/1.1" + first[8:].ljust(5),
        fields,
        length,
        is_chunked,
        has_date,
        int(first[9:12]),
        _keeps_alive(options, is_http_1_0=is_http_1_0),
        _announced(block) if is_chunked else b"",
        tells_limits,
    )


answer_head: Final = lru_cache(maxsize=512)(read_answer_head)
"""The same for heads of up to `KNOWN_MAX` bytes: applications repeat themselves, so the last
few are cached."""


def _read_length(value: bytes, before: int | None) -> int:
    """Return the value of a `Content-Length`, given that of one before it."""
    if before is not None or not value.isdigit() or len(value) > LONGEST_LENGTH:
        raise UpstreamProtocolError("an invalid Content-Length")
    return int(value)


def _announced(block: bytes) -> bytes:
    values = [match[1] for match in _trailer_fields(block)]
    listed = (name.strip(b" \t") for name in b",".join(values).split(b","))
    names = [name for name in listed if name and _may_trail(name)]
    return b"\r\nTrailer: " + b", ".join(names) if names else b""


def _keeps_alive(options: list[bytes], *, is_http_1_0: bool) -> bool:
    """Return whether a connection persists (RFC 9112, section 9.3)."""
    if not options:
        return not is_http_1_0
    said = {option.strip(b" \t") for option in b",".join(options).lower().split(b",")}
    return b"close" not in said and (not is_http_1_0 or b"keep-alive" in said)


def trailer_lines(section: bytes) -> bytes:
    """Return the part of a trailer section that may be passed on (RFC 9110, section 6.5.1).

    Fields that frame, route or authenticate a message, say how to read its content, or control
    caches and user agents before they read it, belong in its head only.

    Args:
        section: fields that a strict parser has accepted, each after a line end.

    Returns:
        Lines, each with its line end.
    """
    kept = [line for line in section.split(b"\r\n")[1:] if _may_trail(line.partition(b":")[0])]
    return b"".join(b"%b\r\n" % line for line in kept)


def _may_trail(name: bytes) -> bool:
    return kind_of(name) == PASS and name.lower() not in _NOT_IN_TRAILERS


_switch_fields: Final = re.compile(rb"\r\n((?i:connection|upgrade)):[ \t]*([^\r\n]*)").finditer


def switches_to_websocket(block: bytes) -> bool:
    """Return whether the head of a 101 answer names only this protocol (RFC 9110, section 7.8).

    Args:
        block: everything before the empty line, accepted by a strict parser.
    """
    said: dict[bytes, list[bytes]] = {b"connection": [], b"upgrade": []}
    for match in _switch_fields(block):
        tokens = (token.strip(b" \t").lower() for token in match[2].split(b","))
        said[match[1].lower()] += filter(None, tokens)
    return said[b"upgrade"] == [b"websocket"] and b"upgrade" in said[b"connection"]


def without_length(fields: bytes) -> bytes:
    """Return header lines, each after a line end, without `Content-Length`."""
    lines = fields.split(b"\r\n")
    return b"\r\n".join(line for line in lines if kind_of(line.partition(b":")[0]) != LENGTH)


_has_retry_after: Final = re.compile(rb"(?im)^retry-after:").search


def added_to(fields: bytes, added: bytes) -> bytes:
    """Return the gateway's own lines for an answer, which may have its own `Retry-After`."""
    # Not `in`: for bytes, it first checks whether the left side is a number.
    if added.find(b"Retry-After:") >= 0 and _has_retry_after(fields):
        return b"".join(
            line for line in added.splitlines(keepends=True) if not _has_retry_after(line)
        )
    return added
