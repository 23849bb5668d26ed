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
from gateway.proxy.grammar import is_head

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
TE: Final = 10

_KINDS: Final[dict[bytes, int]] = {
    b"connection": CONNECTION,
    b"keep-alive": HOP_BY_HOP,
    b"proxy-connection": HOP_BY_HOP,
    b"proxy-authenticate": HOP_BY_HOP,
    b"proxy-authorization": HOP_BY_HOP,
    b"te": TE,
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
    # Whose certificate it is that a proxy has verified: RFC 9440, section 4, and Envoy's own.
    b"client-cert": ORIGIN,
    b"client-cert-chain": ORIGIN,
    b"x-forwarded-client-cert": ORIGIN,
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
"""Bytes of a head that is remembered: longer ones would fill memory."""
LONGEST_LENGTH: Final = 19
"""Digits that `Content-Length` may have: nothing real needs more, and 64 bits hold it."""
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
    if takes_trailers(headers):
        # A wish to the next hop, which this gateway can grant (RFC 9110, section 10.1.4).
        lines.append(b"Connection: TE\r\nTE: trailers\r\n")
    lines += _told_of(origin, host, forwarded_for, told)
    lines += (via, origin.own_fields)
    return b"".join(lines)


def _told_of(
    origin: Origin, host: bytes, forwarded_for: list[bytes], told: set[bytes]
) -> tuple[bytes, ...]:
    """Where a request came from, in this gateway's own words, beside what it was told."""
    peer = origin.peer.encode("ascii")
    scheme = origin.scheme.encode("ascii")
    node = b'"[' + peer + b']"' if b":" in peer else peer
    return (
        b"X-Forwarded-For: %b\r\n" % b", ".join((*forwarded_for, peer)),
        b"" if b"x-forwarded-proto" in told else b"X-Forwarded-Proto: %b\r\n" % scheme,
        b"" if b"x-forwarded-host" in told else b"X-Forwarded-Host: %b\r\n" % host,
        b'Forwarded: for=%b;host="%b";proto=%b\r\n' % (node, host, scheme),
    )


def takes_trailers(headers: Sequence[Header]) -> bool:
    """Whether a client says that it reads trailers (RFC 9110, section 6.5.1)."""
    values = [value.lower() for name, value in headers if kind_of(name) == TE]
    return any(coding.strip(b" \t") == b"trailers" for coding in b",".join(values).split(b","))


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
        status: the status code.
        keeps_alive: whether the connection may carry another exchange.
        announced: the `Trailer` field of a body in chunks, behind a line end; empty if it
            names nothing.
    """

    status_line: bytes
    fields: bytes
    length: int | None
    is_chunked: bool
    has_date: bool
    status: int
    keeps_alive: bool
    announced: bytes


_special_fields: Final = re.compile(
    rb"\r\n((?i:connection|keep-alive|proxy-connection|proxy-authenticate|proxy-authorization|te"
    rb"|trailer|upgrade|http2-settings|content-length|transfer-encoding|date)):[ \t]*([^\r\n]*)"
).finditer

_trailer_fields: Final = re.compile(rb"\r\n(?i:trailer):[ \t]*([^\r\n]*)").finditer


def read_answer_head(block: bytes) -> AnswerHead:
    """Read the head of an answer.

    Args:
        block: everything before the empty line.

    Raises:
        UpstreamProtocolError: it is not the head of an answer of HTTP/1, or `Content-Length`
            or `Transfer-Encoding` say nothing certain.
    """
    if not is_head(block):
        raise UpstreamProtocolError("not the head of an answer")
    first = block.partition(b"\r\n")[0]
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
        # RFC 9112, section 6.1: chunks are not known to HTTP/1.0, and exclude a length.
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
        # `HTTP/1.1 200 OK`: the version is this gateway's, whatever the upstream's is; and the
        # blank after the code is not optional, unlike the reason (RFC 9112, section 4).
        b"HTTP/1.1" + first[8:].ljust(5),
        fields,
        length,
        is_chunked,
        has_date,
        int(first[9:12]),
        _keeps_alive(options, is_http_1_0=is_http_1_0),
        _announced(block) if is_chunked else b"",
    )


answer_head: Final = lru_cache(maxsize=512)(read_answer_head)
"""The same for heads of up to `KNOWN_MAX` bytes: applications repeat themselves, so the last
few are remembered."""


def _read_length(value: bytes, before: int | None) -> int:
    """A `Content-Length`, given what one before it said."""
    if before is not None or not value.isdigit() or len(value) > LONGEST_LENGTH:
        raise UpstreamProtocolError("an invalid Content-Length")
    return int(value)


def _announced(block: bytes) -> bytes:
    values = [match[1] for match in _trailer_fields(block)]
    listed = (name.strip(b" \t") for name in b",".join(values).split(b","))
    names = [name for name in listed if name and _may_trail(name)]
    return b"\r\nTrailer: " + b", ".join(names) if names else b""


def _keeps_alive(options: list[bytes], *, is_http_1_0: bool) -> bool:
    """Whether a connection persists (RFC 9112, section 9.3)."""
    if not options:
        return not is_http_1_0
    said = {option.strip(b" \t") for option in b",".join(options).lower().split(b",")}
    return b"close" not in said and (not is_http_1_0 or b"keep-alive" in said)


def trailer_lines(section: bytes) -> bytes:
    """What of a trailer section may be passed on (RFC 9110, section 6.5.1).

    Fields that frame, route or authenticate a message, say how its content is to be read, or
    steer caches and user agents before it was read, belong into its head alone.

    Args:
        section: fields as a strict parser has accepted them, each behind a line end.

    Returns:
        Lines, each with its line end.
    """
    kept = [line for line in section.split(b"\r\n")[1:] if _may_trail(line.partition(b":")[0])]
    return b"".join(b"%b\r\n" % line for line in kept)


def _may_trail(name: bytes) -> bool:
    return kind_of(name) == PASS and name.lower() not in _NOT_IN_TRAILERS


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
