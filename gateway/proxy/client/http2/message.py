"""The head of a request over HTTP/2, as the rest of the gateway knows it.

Pure. A request becomes what the parser of HTTP/1.1 makes of the same request, so that everything
behind the connection is the same for both. The framing has refused what is malformed by RFC 9113,
sections 8.2 and 8.3: names in upper case or with other characters, values with CR, LF or NUL or
with spaces around them, fields that concern a connection, pseudo-header fields that are missing,
repeated, unknown or late, and a `content-length` that is not one. What is left is checked here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.http import HttpVersion, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gateway.base.errors import BadRequestError
from gateway.routing.methods import LONGEST_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gateway.proxy.client.request_message import RequestMessage
    from gateway.proxy.client.request_parser import RequestParser

    Field = tuple[bytes, bytes]

_make_message: Final[Callable[..., RequestMessage]] = RawRequestMessage
"""The parser's class is not the one that its type says; see `RequestMessage`."""
HTTP_2: Final = HttpVersion(2, 0)
FIELD_OVERHEAD: Final = 32
"""Bytes that a field counts for beside its name and value (RFC 9113, section 6.5.2)."""

_NO_URL: Final = URL()
"""aiohttp's messages have one; nothing here reads it."""
_is_method: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_target: Final = re.compile(rb"/[!-~]*|\*").fullmatch

_ONCE: Final = frozenset(
    {
        *(b"content-location", b"content-range", b"content-type", b"etag", b"max-forwards"),
        *(b"server", b"user-agent"),
    }
)
"""Fields that a request over HTTP/1.1 may not repeat either: aiohttp's parser refuses it. The
framing does so with `content-length` and `host`."""


def read_request(
    fields: Sequence[Field],
    parser: RequestParser,
    max_head: int,
    schemes: Collection[bytes],
    *,
    is_whole: bool,
) -> RequestMessage | BadRequestError:
    """Return the request in the fields of a head, or the error in it.

    Args:
        fields: as the framing has accepted them: the pseudo-header fields first, each at most once.
        parser: has the limits of one field and of their number, and the known methods.
        max_head: most bytes in all fields, with what each counts for besides.
        schemes: what the client may say that it uses.
        is_whole: whether no body follows.
    """
    pseudo: dict[bytes, bytes] = {}
    headers: CIMultiDict[str] = CIMultiDict()
    raw: list[Field] = []
    cookies: list[bytes] = []
    hosts: list[bytes] = []
    size = FIELD_OVERHEAD * len(fields)
    for name, value in fields:
        size += len(name) + len(value)
        if name[:1] == b":":
            pseudo[name] = value
        elif name == b"cookie":
            # In pieces, for better compression (RFC 9113, section 8.2.3).
            cookies.append(value)
        elif name == b"host":
            hosts.append(value)
        else:
            raw.append((name, value))
            headers.add(name.decode("ascii"), value.decode("utf-8", "surrogateescape"))
    if cookies:
        cookie = b"; ".join(cookies)
        raw.append((b"cookie", cookie))
        headers.add("cookie", cookie.decode("utf-8", "surrogateescape"))
    try:
        _check_size(raw, size, parser, max_head)
        _check_repetition(raw)
        method, path = _first_line(pseudo, parser, schemes)
        host = _host(pseudo.get(b":authority", b""), hosts)
    except BadRequestError as error:
        return error
    if host:
        raw.insert(0, (b"Host", host))
        headers.add("Host", host.decode("utf-8", "surrogateescape"))
    return _make_message(
        method.decode("ascii"),
        path.decode("ascii"),
        HTTP_2,
        CIMultiDictProxy(headers),
        tuple(raw),
        # Streams end; the connection goes on.
        should_close=False,
        compression=None,
        upgrade=False,
        # The length is not known beforehand.
        chunked=not is_whole and CONTENT_LENGTH not in headers,
        url=_NO_URL,
    )


def _check_size(raw: Sequence[Field], size: int, parser: RequestParser, max_head: int) -> None:
    if size > max_head:
        raise BadRequestError("The request's head is too large", 431, kind="too_large")
    if len(raw) > parser.max_headers:
        raise BadRequestError("The request has too many header fields", 431, kind="too_large")
    longest = parser.max_header_size
    if size > longest and any(len(name) + len(value) > longest for name, value in raw):
        raise BadRequestError("A header field is too long", 431, kind="too_large")


def _check_repetition(raw: Sequence[Field]) -> None:
    names = [name for name, _ in raw]
    if len({*names}) < len(names) and any(names.count(name) > 1 for name in _ONCE):
        raise BadRequestError("The request is not valid HTTP")


def _first_line(
    pseudo: Mapping[bytes, bytes], parser: RequestParser, schemes: Collection[bytes]
) -> tuple[bytes, bytes]:
    """Return method and target, as the first line of HTTP/1.1 has them."""
    method, path = pseudo[b":method"], pseudo.get(b":path", b"")
    if len(path) > parser.max_header_size:
        raise BadRequestError("The request target is too long", 414, kind="too_large")
    if len(method) > LONGEST_METHOD or not (_is_method(method) and parser.knows(method)):
        raise BadRequestError("This method is not known", 501, kind="method")
    if method == b"CONNECT":
        # It has no path; it is refused where it is over HTTP/1.1.
        path = pseudo[b":authority"]
    elif not _is_target(path) or pseudo[b":scheme"].lower() not in schemes:
        raise BadRequestError("The request target is not valid", kind="target")
    return method, path


def _host(authority: bytes, hosts: Sequence[bytes]) -> bytes:
    """Return the host that a request names; empty for none."""
    if authority and any(host.lower() != authority.lower() for host in hosts):
        # One server would believe one of them, and the next the other.
        raise BadRequestError("The host is not valid", kind="host")
    return authority or b"".join(hosts[:1])
