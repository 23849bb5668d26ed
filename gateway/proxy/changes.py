"""What routes change of the requests that they forward and of the answers that come back.

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


def _route_name(request: Request) -> str:
    return request.route.name if request.route is not None else ""


GETTERS: Final[dict[str, Callable[[Request], str]]] = {
    "client_ip": lambda request: request.client,
    "host": lambda request: request.host,
    "method": lambda request: request.method,
    "path": lambda request: request.path,
    "query": lambda request: request.query,
    "route": _route_name,
    "scheme": lambda request: request.scheme,
}
"""How each variable of a template is found in a request."""


def make_renderer(template: Template) -> Callable[[Request], bytes] | bytes:
    """What fills in a template for a request."""
    getters = dict(GETTERS)
    for name in template.names:
        if name.startswith(HEADER):
            getters[name] = _header(name.removeprefix(HEADER))
    return renderer(template, getters)


def _header(name: str) -> Callable[[Request], str]:
    return lambda request: ", ".join(request.headers.getall(name, ()))


class Outgoing:
    """What is changed of a route's requests.

    Args:
        rewrite: of their paths; None for nothing.
        host: what the upstream is told: a host, empty for the target's own, None for the
            client's.
        edit: of their header fields; None for nothing.
    """

    __slots__ = ("_edit", "_host", "_rewrite")

    def __init__(
        self, rewrite: Rewrite | None, host: str | None, edit: FieldEdit[Request] | None
    ) -> None:
        self._rewrite = rewrite
        self._host = host
        self._edit = edit

    def target(self, request: Request) -> str:
        """The request target for the upstream; the query stays as it is.

        Raises:
            BadRequestError: the path cannot be rewritten in one way.
        """
        if self._rewrite is None:
            return request.target
        path = self._rewrite.apply(request.path)
        return path + request.target[len(request.path) :]

    def fields(self, fields: bytes, request: Request, authority: str) -> bytes:
        """The header lines for the upstream.

        Args:
            fields: as they are without changes.
            request: that they belong to.
            authority: of the target.
        """
        if self._host is not None:
            line = b"Host: %b\r\n" % (self._host or authority).encode("ascii")
            fields = _is_host_line.sub(lambda _: line, fields, count=1)
        return self._edit.apply(fields, request) if self._edit is not None else fields
