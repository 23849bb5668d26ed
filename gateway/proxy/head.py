"""What becomes of header fields on their way to the upstream: no I/O, bytes in and bytes out.

Fields keep their order, case, repetition and bytes. Left out are those that concern one
connection only (RFC 9110, section 7.6.1), with every field that `Connection` names; framing
is always written anew. What a client says about where it comes from (`X-Forwarded-*`,
`Forwarded` and the like) is passed on only if the client is a trusted proxy, and this
gateway's own words are added afterwards, where nothing a client sent can take them away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Final, NamedTuple

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
    # And whatever else begins with `X-Forwarded-`.
    b"x-forwarded": ORIGIN,
    b"x-real-ip": ORIGIN,
    b"x-client-ip": ORIGIN,
    b"x-cluster-client-ip": ORIGIN,
    b"true-client-ip": ORIGIN,
    b"cf-connecting-ip": ORIGIN,
    b"x-original-url": ORIGIN,
    b"x-rewrite-url": ORIGIN,
    b"forwarded": ORIGIN,
    # Whose certificate it is that a proxy has verified: RFC 9440, section 4, and Envoy's own.
    b"client-cert": ORIGIN,
    b"client-cert-chain": ORIGIN,
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
        plain = reserved_name(name)
        kind = _KINDS.get(plain, PASS)
        if kind == PASS and plain.startswith(b"x-forwarded-"):
            kind = ORIGIN
        if len(name) <= _SPELLING_MAX_BYTES:
            if len(_spelled) >= _SPELLINGS_MAX:
                _spelled.clear()
            _spelled[name] = kind
    return kind


def connection_options(values: Iterable[bytes]) -> frozenset[bytes]:
    """The names in `Connection` fields that may be removed, in lower case."""
    # Each once, before anything is done to it: there may be thousands, most of them empty.
    names = {name.strip(b" \t") for name in set(b",".join(values).lower().split(b","))}
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
    codings = b",".join([value for name, value in headers if kind_of(name) == TE]).lower()
    return b"trailers" in codings and any(
        coding.strip(b" \t") == b"trailers" for coding in codings.split(b",")
    )


def _named_by_connection(headers: Sequence[Header]) -> frozenset[bytes] | None:
    values = [value for name, value in headers if kind_of(name) == CONNECTION]
    return connection_options(values) if values else None


@lru_cache(maxsize=2)
def http_date(now: int) -> bytes:
    """An IMF-fixdate (RFC 9110, section 5.6.7) of whole seconds since 1970."""
    return formatdate(now, usegmt=True).encode("ascii")
