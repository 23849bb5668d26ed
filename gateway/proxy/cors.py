"""CORS of the gateway's own responses: which pages of other sites may read them. Pure.

Without these fields a refusal is an error without status, body or `Retry-After` to the code of a
page. Whether a page may read what an upstream sends is for the upstream to say: the gateway only
adds the names of its own fields to what such a page may read. Preflights are not answered here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.http.answer import Answer
    from gateway.proxy.request import Request

ANY: Final = "*"
_LIMIT_FIELDS: Final = (
    *("RateLimit", "RateLimit-Policy"),
    *("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"),
)
_is_below: Final = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*").fullmatch
_allows: Final = re.compile(rb"\r\n(?i:access-control-allow-origin):").search
_vary: Final = re.compile(rb"(?im)^(vary:[^\r\n]*)").subn


class Cors:
    """What one route tells browsers.

    Args:
        origins: as in `Origin`, in lower case; `https://*.example.com` is any host below it.
        exposed: names of fields that pages may read besides those about limits.
        credentials: whether they may read responses to requests with cookies.
    """

    __slots__ = ("_below", "_credentials", "_exact", "_exposing", "_is_open")

    def __init__(
        self, origins: Sequence[str], exposed: Sequence[str] = (), *, credentials: bool = False
    ) -> None:
        self._is_open = ANY in origins
        self._exact = frozenset([one for one in origins if "*" not in one])
        # What comes before and after the part that may be anything.
        self._below = tuple([tuple(one.split("*")) for one in origins if "*." in one])
        names = dict.fromkeys((*_LIMIT_FIELDS, *exposed))
        line = f"Access-Control-Expose-Headers: {', '.join(names)}\r\n"
        self._exposing = line.encode("ascii")
        self._credentials = b"Access-Control-Allow-Credentials: true\r\n" if credentials else b""

    def of_own(self, reply: Answer, request: Request) -> Answer:
        """Return a response of the gateway with the fields for the page that requested it.

        Where they depend on the page, caches are told even if it may not read the response.
        """
        if self._is_open:
            lines = b"Access-Control-Allow-Origin: *\r\n" + self._exposing
            return reply._replace(fields=reply.fields + lines)
        fields, found = _vary(rb"\1, Origin", reply.fields)
        if not found:
            fields += b"Vary: Origin\r\n"
        origin = self._allowed(request)
        if origin:
            allowing = b"Access-Control-Allow-Origin: %b\r\n" % origin.encode("ascii")
            fields += allowing + self._credentials + self._exposing
        return reply._replace(fields=fields)

    def of_upstream(self, fields: bytes, request: Request) -> bytes:
        """Return what is added to an upstream's response that has fields of the gateway.

        Args:
            fields: of the upstream, each after a line end.
            request: the request.
        """
        if _allows(fields) is None or not (self._is_open or self._allowed(request)):
            return b""
        return self._exposing

    def _allowed(self, request: Request) -> str:
        """Return the origin of the page if it is allowed, otherwise nothing."""
        said = request.headers.getall("Origin", ())
        origin = said[0] if len(said) == 1 else ""
        if origin in self._exact or any(
            origin.startswith(start)
            and origin.endswith(end)
            and _is_below(origin[len(start) : -len(end)])
            for start, end in self._below
        ):
            return origin
        return ""
