"""How header fields change on their way to the upstream: no I/O, bytes in and bytes out.

Fields keep their order, case, repetition and bytes. Hop-by-hop fields are removed (RFC 9110,
section 7.6.1), with every field that `Connection` names; framing is always written again. What a
client says about its origin (`X-Forwarded-*`, `Forwarded` and the like) counts only if the client
is a trusted proxy; the gateway writes `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded` itself,
based on that, and adds them last, where nothing a client sends can remove them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.routing.forwarding import (
    ORIGIN_FIELDS,
    SCHEME_FIELDS,
    SCHEMES,
    TOLD_FIELDS,
    ProxyReport,
)
from gateway.routing.spelling import NOTHING_RESERVED, Reserved, is_misspelled, reserved_name

Header = tuple[bytes, bytes]

PSEUDONYM: Final = "sluice"
"""The gateway's name in `Via` (RFC 9110, section 7.6.3)."""

PASS: Final = 0
HOP_BY_HOP: Final = 1
LENGTH: Final = 2
TRANSFER: Final = 3
TOLD: Final = 4
ORIGIN: Final = 5
CONNECTION: Final = 6
EXPECT: Final = 7
HOST: Final = 8
DATE: Final = 9
TE: Final = 10
SCHEME: Final = 11

_KINDS: Final[dict[bytes, int]] = {
    b"connection": CONNECTION,
    b"keep-alive": HOP_BY_HOP,
    # CGI programs find their own proxy in the variable of this name (CVE-2016-5385).
    b"proxy": HOP_BY_HOP,
    b"proxy-connection": HOP_BY_HOP,
    b"proxy-authenticate": HOP_BY_HOP,
    b"proxy-authorization": HOP_BY_HOP,
    b"te": TE,
    b"trailer": HOP_BY_HOP,
    b"upgrade": HOP_BY_HOP,
    b"http2-settings": HOP_BY_HOP,
    b"content-length": LENGTH,
    b"transfer-encoding": TRANSFER,
    **dict.fromkeys((name.encode("ascii") for name in ORIGIN_FIELDS), ORIGIN),
    **dict.fromkeys((name.encode("ascii") for name in SCHEME_FIELDS), SCHEME),
    **dict.fromkeys((name.encode("ascii") for name in TOLD_FIELDS), TOLD),
    b"expect": EXPECT,
    b"host": HOST,
    b"date": DATE,
}
# Names that `Connection` may not remove: they route, frame or authenticate the message, or have
# nothing to do with one connection (CVE-2022-31813, CVE-2024-45410).
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
    """Return how a field of this name is treated, in any spelling."""
    kind = _spelled.get(name)
    if kind is None:
        plain = reserved_name(name)
        kind = _KINDS.get(plain, PASS)
        if kind == PASS and plain.startswith(b"x-forwarded-"):
            kind = ORIGIN
        if kind != PASS and plain != name.lower():
            # A way past recipients that look for the exact name, including trusted proxies.
            kind = HOP_BY_HOP
        if len(name) <= _SPELLING_MAX_BYTES:
            if len(_spelled) >= _SPELLINGS_MAX:
                _spelled.clear()
            _spelled[name] = kind
    return kind


def connection_options(values: Iterable[bytes]) -> frozenset[bytes]:
    """Return the names in `Connection` fields that may be removed, in lower case."""
    # Deduplicate first: there may be thousands, most of them empty.
    names = {name.strip(b" \t") for name in set(b",".join(values).lower().split(b","))}
    # Elements of a list may be empty (RFC 9110, section 5.6.1); they name nothing.
    return frozenset(names - _NOT_REMOVABLE - {b""})


class RequestOrigin(NamedTuple):
    """The origin of a request, as reported to the upstream.

    Attributes:
        peer: the address at the other end of the connection.
        scheme: `http` or `https`.
        host: the host that the client asked for, as it wrote it; never empty.
        is_trusted: whether the peer is trusted to report the request's earlier origin.
        own_fields: header lines that identify the client by its certificate.
        reserved: what is removed in other spellings, from every client.
        story: what the peer reported, if it is trusted.
    """

    peer: str
    scheme: str
    host: str
    is_trusted: bool
    own_fields: bytes = b""
    reserved: Reserved = NOTHING_RESERVED
    report: ProxyReport | None = None


def request_fields(headers: Sequence[Header], origin: RequestOrigin, via: bytes) -> bytes:
    """Return the header lines for the upstream, without those that frame the body.

    Args:
        headers: as the client sent them.
        origin: where the request came from.
        via: this gateway's own `Via` line, with its line end.
    """
    if origin.reserved:
        headers = [one for one in headers if not is_misspelled(one[0], origin.reserved)]
    options = _named_by_connection(headers, origin.reserved)
    host = origin.host.encode("latin-1")
    lines: list[bytes] = []
    has_host = False
    report = origin.report if origin.is_trusted else None
    for name, value in headers:
        kind = kind_of(name)
        if kind in (PASS, EXPECT, DATE):
            if not options or name.lower() not in options:
                lines += (name, b": ", value, b"\r\n")
        elif kind == HOST:
            has_host = True
            lines += (name, b": ", host, b"\r\n")
        elif (kind == ORIGIN and origin.is_trusted) or (
            kind == SCHEME and report is not None and _agrees(value, report.scheme)
        ):
            lines += (name, b": ", value, b"\r\n")
    if not has_host:
        lines[:0] = (b"Host: ", host, b"\r\n")
    if takes_trailers(headers):
        # A request to the next hop, which this gateway can fulfil (RFC 9110, section 10.1.4).
        lines.append(b"Connection: TE\r\nTE: trailers\r\n")
    lines += (*_reported_origin(origin, report), via, origin.own_fields)
    return b"".join(lines)


def _agrees(value: bytes, scheme: str) -> bool:
    return SCHEMES.get(value.decode("latin-1").lower()) == scheme


def _reported_origin(origin: RequestOrigin, report: ProxyReport | None) -> tuple[bytes, ...]:
    """Return the origin of a request as this gateway reports it."""
    peer, scheme, host = origin.peer, origin.scheme, origin.host
    if report is None:
        node = f'"[{peer}]"' if ":" in peer else peer
        chain = peer
        forwarded = f'for={node};host="{host}";proto={scheme}'
    else:
        chain = ", ".join((*report.chain, peer))
        forwarded = report.forwarded(peer, scheme, host)
        scheme = report.scheme or scheme
        host = report.host or host
    return (
        b"X-Forwarded-For: %b\r\n" % chain.encode("utf-8", "surrogateescape"),
        b"X-Forwarded-Proto: %b\r\n" % scheme.encode("ascii"),
        b"X-Forwarded-Host: %b\r\n" % host.encode("latin-1"),
        b"Forwarded: %b\r\n" % forwarded.encode("latin-1"),
    )


def takes_trailers(headers: Sequence[Header]) -> bool:
    """Return whether a client says that it accepts trailers (RFC 9110, section 6.5.1)."""
    codings = b",".join([value for name, value in headers if kind_of(name) == TE]).lower()
    return b"trailers" in codings and any(
        coding.strip(b" \t") == b"trailers" for coding in codings.split(b",")
    )


def _named_by_connection(headers: Sequence[Header], reserved: Reserved) -> frozenset[bytes] | None:
    """Return what a client removes; it may not hide what requests are counted or routed by."""
    values = [value for name, value in headers if kind_of(name) == CONNECTION]
    if not values:
        return None
    options = connection_options(values)
    if not reserved:
        return options
    return frozenset(name for name in options if reserved_name(name) not in reserved)


@lru_cache(maxsize=2)
def http_date(now: int) -> bytes:
    """Return an IMF-fixdate (RFC 9110, section 5.6.7) of whole seconds since 1970."""
    return formatdate(now, usegmt=True).encode("ascii")
