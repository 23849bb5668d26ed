"""WebSocket handshakes: which requests may open one (RFC 6455, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp.hdrs import UPGRADE
from aiohttp.streams import EMPTY_PAYLOAD

from gateway.base.errors import BadRequestError

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.proxy.routes import Route

SWITCHED: Final = 101
SWITCH: Final = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
"""The fields that make a request, or an answer, a handshake; both are hop-by-hop."""


def asks_for_websocket(request: Request) -> bool:
    """Return whether a request asks for a WebSocket in a form that may be passed on.

    Only an HTTP/1.1 GET can (RFC 6455, section 4.1), and a client that names other protocols
    as well must not be taken by its upstream for one that means another.
    """
    return (
        bool(request.message.upgrade)
        and request.method == "GET"
        and not request.is_http_1_0
        and [value.strip().lower() for value in request.headers.getall(UPGRADE, ())]
        == ["websocket"]
    )


def may_open_websocket(request: Request, route: Route) -> bool:
    """Return whether the upstream of a route may answer a request with 101.

    Raises:
        BadRequestError: the request has a body, and the start of the WebSocket after it would be
            ambiguous.
    """
    if not route.websocket or not asks_for_websocket(request):
        return False
    if request.payload is not EMPTY_PAYLOAD:
        message = "A WebSocket handshake has no body"
        raise BadRequestError(message, kind="framing", closes=True)
    return True
