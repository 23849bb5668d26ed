"""The limiter in an aiohttp application: `setup(app, limiter, "pay")`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from gateway.integrations.guard import Guard, Head, Policies, added_fields
from gateway.library import Limiter
from gateway.library.decision import split_fields

_FIELDS: Final = web.RequestKey("sluice-fields", list[tuple[str, str]])


def setup(app: web.Application, limiter: Limiter, policies: Policies) -> None:
    """Limit the requests to an application.

    This adds a middleware before all existing ones. It decides on each request before the handler
    is called, including requests without a handler and WebSocket handshakes. The rate limit fields
    are added to every response, including streams and errors. The limiter is opened and closed with
    the application, unless it is open already.

    Args:
        app: the application, or a subapplication.
        limiter: the limiter with the policies.
        policies: the name of one, several names, or a mapping from patterns such as `POST /v1/pay`
            or `/v1/**` to these; requests that match no pattern are not limited.

    Raises:
        ConfigError: a pattern is not valid.
        ValueError: there is no such policy.
    """
    guard = Guard(limiter, policies)

    @web.middleware
    async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
        fields, answer, slot = await guard.admit(_head(request))
        request[_FIELDS] = fields
        if answer is None:
            async with slot:
                return await handler(request)
        own = CIMultiDict(split_fields(answer.fields))
        return web.Response(status=answer.status, headers=own, body=answer.body)

    async def add_fields(request: web.Request, response: web.StreamResponse) -> None:
        fields = request.get(_FIELDS)
        if fields:
            gone, added = added_fields(response.headers, fields)
            for name in gone:
                response.headers.popall(name)
            response.headers.extend(added)

    async def lifetime(_app: web.Application) -> AsyncIterator[None]:
        if limiter.is_open:
            yield
            return
        async with limiter:
            yield

    app.middlewares.insert(0, limit)
    app.on_response_prepare.append(add_fields)
    app.cleanup_ctx.append(lifetime)


def _head(request: web.Request) -> Head:
    target = request.raw_path
    if not target.startswith("/"):
        # The absolute form (RFC 9112, section 3.2.2); `*` stays as it is.
        target = request.rel_url.raw_path_qs if "://" in target else target
    path, _, query = target.partition("?")
    peername = request.transport.get_extra_info("peername") if request.transport else None
    peer = peername[0] if isinstance(peername, tuple) else ""
    return Head(peer, request.method, path, query, request.headers)
