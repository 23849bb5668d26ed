"""What becomes of header fields on their way through: no I/O, bytes in and bytes out.

Fields keep their order, case, repetition and bytes. Left out are those that concern one
connection only (RFC 9110, section 7.6.1), with every field that `Connection` names; framing
is always written anew. What a client says about where it comes from (`X-Forwarded-*`,
`Forwarded` and the like) is passed on only if the client is a trusted proxy, and this
gateway's own words are added afterwards, where nothing a client sent can take them away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.errors import UpstreamProtocolError

Header = tuple[bytes, bytes]

PSEUDONYM: Final = "sluice"
"""What this gateway calls itself in `Via` (RFC 9110, section 7.6.3)."""

PASS: Final = 0
HOP_BY_HOP: Final = 1
LENGTH: Final = 2
TRANSFER: Final = 3
FORWARDED_FOR: Final = 4
ORIGIN: Final = 5
CONNECTION: Final = 6
EXPECT: Final = 7
HOST: Final = 8
DATE: Final = 9

_KINDS: Final[dict[bytes, int]] = {
    b"connection": CONNECTION,
    b"keep-alive": HOP_BY_HOP,
    b"proxy-connection": HOP_BY_HOP,
    b"proxy-authenticate": HOP_BY_HOP,
    b"proxy-authorization": HOP_BY_HOP,
    b"te": HOP_BY_HOP,
    b"trailer": HOP_BY_HOP,
    b"upgrade": HOP_BY_HOP,
    b"http2-settings": HOP_BY_HOP,
    b"content-length": LENGTH,
    b"transfer-encoding": TRANSFER,
    b"x-forwarded-for": FORWARDED_FOR,
    b"x-forwarded-proto": ORIGIN,
    b"x-forwarded-host": ORIGIN,
    b"x-forwarded-port": ORIGIN,
    b"x-forwarded-prefix": ORIGIN,
    b"x-forwarded-server": ORIGIN,
    b"x-real-ip": ORIGIN,
    b"x-original-url": ORIGIN,
    b"x-rewrite-url": ORIGIN,
    b"forwarded": ORIGIN,
    b"expect": EXPECT,
    b"host": HOST,
    b"date": DATE,
}
# Names that `Connection` may not take away: they route, frame or authenticate the message,
# or have nothing to do with one connection (CVE-2022-31813, CVE-2024-45410).
_NOT_REMOVABLE: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"authorization",
        b"cookie",
        b"expect",
        b"date",
        b"cache-control",
        b"close",
        b"keep-alive",
        b"via",
    }
)
_spelled: dict[bytes, int] = {}
_SPELLINGS_MAX: Final = 4096
_SPELLING_MAX_BYTES: Final = 64


def kind_of(name: bytes) -> int:
    """How a field of this name is treated; any spelling."""
    kind = _spelled.get(name)
    if kind is None:
        # Applications behind CGI and WSGI read `X_Forwarded_For` as `X-Forwarded-For`.
        kind = _KINDS.get(reserved_name(name), PASS)
        if len(name) <= _SPELLING_MAX_BYTES:
            if len(_spelled) >= _SPELLINGS_MAX:
                _spelled.clear()
            _spelled[name] = kind
    return kind


def connection_options(values: Iterable[bytes]) -> frozenset[bytes]:
    """The names in `Connection` fields that may be removed, in lower case."""
    names = {name.strip(b" \t").lower() for value in values for name in value.split(b",")}
    # Elements of a list may be empty (RFC 9110, section 5.6.1); they name nothing.
    return frozenset(names - _NOT_REMOVABLE - {b""})


class Origin(NamedTuple):
    """Where a request came from, as told to the upstream.

    Attributes:
        peer: the address at the other end of the connection.
        scheme: `http` or `https`.
        host: the host that the client asked for, as it wrote it; never empty.
        is_trusted: whether the peer may say where the request came from before it.
        own_fields: header lines that tell who the client is, by its certificate.
        reserved: names of such fields, as `reserved_name` has them; those that the client sent
            are left out, whoever it is.
    """

    peer: str
    scheme: str
    host: str
    is_trusted: bool
    own_fields: bytes = b""
    reserved: frozenset[bytes] = frozenset()


def reserved_name(name: bytes) -> bytes:
    """The form in which names are compared: for applications, `X_A` is the same as `X-A`."""
    return name.lower().replace(b"_", b"-")


def request_fields(headers: Sequence[Header], origin: Origin, via: bytes) -> bytes:
    """The header lines for the upstream, without those of the body's framing.

    Args:
        headers: as the client sent them.
        origin: where the request came from.
        via: this gateway's own `Via` line, with its line end.
    """
    if origin.reserved:
        headers = [one for one in headers if reserved_name(one[0]) not in origin.reserved]
    options = _named_by_connection(headers)
    host = origin.host.encode("latin-1")
    lines: list[bytes] = []
    forwarded_for: list[bytes] = []
    told: set[bytes] = set()
    for name, value in headers:
        kind = kind_of(name)
        if kind in (PASS, EXPECT, DATE):
            if not options or name.lower() not in options:
                lines += (name, b": ", value, b"\r\n")
        elif kind == HOST:
            told.add(b"host")
            lines += (name, b": ", host, b"\r\n")
        elif kind == FORWARDED_FOR:
            if origin.is_trusted:
                forwarded_for.append(value)
        elif kind == ORIGIN and origin.is_trusted:
            told.add(name.lower())
            lines += (name, b": ", value, b"\r\n")
    if b"host" not in told:
        lines[:0] = (b"Host: ", host, b"\r\n")
    peer = origin.peer.encode("ascii")
    scheme = origin.scheme.encode("ascii")
    forwarded_for.append(peer)
    lines += (b"X-Forwarded-For: ", b", ".join(forwarded_for), b"\r\n")
    if b"x-forwarded-proto" not in told:
        lines += (b"X-Forwarded-Proto: ", scheme, b"\r\n")
    if b"x-forwarded-host" not in told:
        lines += (b"X-Forwarded-Host: ", host, b"\r\n")
    node = b'"[' + peer + b']"' if b":" in peer else peer
    lines += (b"Forwarded: for=", node, b';host="', host, b'";proto=', scheme, b"\r\n", via)
    lines.append(origin.own_fields)
    return b"".join(lines)


def _named_by_connection(headers: Sequence[Header]) -> frozenset[bytes] | None:
    values = [value for name, value in headers if kind_of(name) == CONNECTION]
    return connection_options(values) if values else None


class AnswerHead(NamedTuple):
    """The head of an upstream's answer, ready to be passed on.

    Attributes:
        status_line: `HTTP/1.1`, status and reason, without a line end.
        fields: the end-to-end header lines, each behind a line end. `Content-Length` is
            among them if there is one.
        length: what `Content-Length` says; None if there is none.
        is_chunked: whether the body was in chunks.
        has_date: whether `Date` is among the fields.
    """

    status_line: bytes
    fields: bytes
    length: int | None
    is_chunked: bool
    has_date: bool


_special_fields: Final = re.compile(
    rb"\r\n((?i:connection|keep-alive|proxy-connection|proxy-authenticate|proxy-authorization|te"
    rb"|trailer|upgrade|http2-settings|content-length|transfer-encoding|date)):[ \t]*([^\r\n]*)"
).finditer


@lru_cache(maxsize=512)
def answer_head(block: bytes) -> AnswerHead:
    """Read the head of an answer.

    Applications repeat themselves, so the last few heads are remembered.

    Args:
        block: everything before the empty line, as a strict parser has accepted it.

    Raises:
        UpstreamProtocolError: the version is not known, or `Content-Length` or
            `Transfer-Encoding` say nothing certain.
    """
    first = block.partition(b"\r\n")[0]
    if first[:9] not in (b"HTTP/1.1 ", b"HTTP/1.0 "):
        raise UpstreamProtocolError("a version of HTTP that is not known")
    pieces: list[bytes] = []
    end = len(first)
    length: int | None = None
    is_chunked = has_date = False
    canonical = b""
    options: list[bytes] = []
    for match in _special_fields(block):
        kind = kind_of(match[1])
        value = match[2].rstrip(b" \t")
        if kind == DATE:
            has_date = True
            continue
        if kind == LENGTH:
            if length is not None or not value.isdigit():
                raise UpstreamProtocolError("an invalid Content-Length")
            length = int(value)
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
    pieces.append(block[end:])
    fields = b"".join(pieces)
    named = connection_options(options)
    if named:
        lines = fields.split(b"\r\n")
        fields = b"\r\n".join(
            line for line in lines if line.partition(b":")[0].lower() not in named
        )
    # `HTTP/1.1 200 OK`: the version is this gateway's, whatever the upstream's is; and the
    # blank after the code is not optional, unlike the reason (RFC 9112, section 4).
    status_line = b"HTTP/1.1" + first[8:].ljust(5)
    return AnswerHead(status_line, fields, length, is_chunked, has_date)


_switch_fields: Final = re.compile(rb"\r\n((?i:connection|upgrade)):[ \t]*([^\r\n]*)").finditer


def switches_to_websocket(block: bytes) -> bool:
    """Whether the head of an answer 101 names this one protocol (RFC 9110, section 7.8).

    Args:
        block: everything before the empty line, as a strict parser has accepted it.
    """
    said: dict[bytes, list[bytes]] = {b"connection": [], b"upgrade": []}
    for match in _switch_fields(block):
        tokens = (token.strip(b" \t").lower() for token in match[2].split(b","))
        said[match[1].lower()] += filter(None, tokens)
    return said[b"upgrade"] == [b"websocket"] and b"upgrade" in said[b"connection"]


def without_length(fields: bytes) -> bytes:
    """Header lines, each behind a line end, without `Content-Length`."""
    lines = fields.split(b"\r\n")
    return b"\r\n".join(line for line in lines if kind_of(line.partition(b":")[0]) != LENGTH)


@lru_cache(maxsize=2)
def http_date(now: int) -> bytes:
    """An IMF-fixdate (RFC 9110, section 5.6.7) of whole seconds since 1970."""
    return formatdate(now, usegmt=True).encode("ascii")
