"""What routes change in the requests that they forward and in the answers that come back.

Everything is compiled when the configuration is loaded; a route that changes nothing has None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.http.editing.fields import FieldEdit
from gateway.http.editing.template import HEADER, Template, renderer

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.routing.rewrite import Rewrite

_is_host_line: Final = re.compile(rb"(?im)^host:[^\n]*\n")


GETTERS: Final[dict[str, Callable[[Request], str]]] = {
    "client_ip": lambda request: request.client,
    "host": lambda request: request.host,
    "method": lambda request: request.method,
    "path": lambda request: request.path,
    "query": lambda request: request.query,
    "scheme": lambda request: request.scheme,
}
"""How to find each template variable in a request; `route` is known beforehand."""


def make_renderer(template: Template, route: str) -> Callable[[Request], bytes] | bytes:
    """Return the function that fills in a template for the requests of a route."""
    getters = {**GETTERS, "route": lambda _: route}
    for name in template.names:
        if name.startswith(HEADER):
            getters[name] = _header(name.removeprefix(HEADER))
    return renderer(template, getters)


def _header(name: str) -> Callable[[Request], str]:
    return lambda request: ", ".join(request.headers.getall(name, ()))


class Outgoing:
    """The changes to a route's requests.

    Args:
        rewrite: rewrites the path; None for no change.
        host: the `Host` sent to the upstream: a host, empty for the target's own, None for the
            client's.
        edit: edits the header fields; None for no change.
    """

    __slots__ = ("_edit", "_host", "_rewrite")

    def __init__(
        self, rewrite: Rewrite | None, host: str | None, edit: FieldEdit[Request] | None
    ) -> None:
        self._rewrite = rewrite
        self._host = host
        self._edit = edit

    def target(self, request: Request) -> str:
        """Return the request target for the upstream; the query stays as it is.

        Raises:
            BadRequestError: the rewritten path would be ambiguous.
        """
        if self._rewrite is None:
            return request.target
        path = self._rewrite.apply(request.path)
        return path + request.target[len(request.path) :]

    def fields(self, fields: bytes, request: Request, authority: str) -> bytes:
        """Return the header lines for the upstream.

        Args:
            fields: the header lines without changes.
            request: the request that they belong to.
            authority: of the target.
        """
        if self._host is not None:
            line = b"Host: %b\r\n" % (self._host or authority).encode("ascii")
            fields = _is_host_line.sub(lambda _: line, fields, count=1)
        return self._edit.apply(fields, request) if self._edit is not None else fields
