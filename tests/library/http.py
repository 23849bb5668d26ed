"""Applications under each middleware, served on free ports of loopback by real servers.

That of aiohttp by pytest-aiohttp's `aiohttp_client`, whose session asks it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

import aiohttp
import uvicorn
from aiohttp import web
from pytest_aiohttp import AiohttpClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from yarl import URL

from gateway import Limiter
from gateway.integrations.aiohttp import setup
from gateway.integrations.asgi import LimitMiddleware
from gateway.integrations.guard import Policies

OF_SERVERS: Final = {"date", "server", "connection", "via", "keep-alive"}


class Answer:
    """What a client sees."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = body

    @property
    def own(self) -> tuple[int, dict[str, str], bytes]:
        """Everything but what any server says of itself."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        kept = {name: value for name, value in headers.items() if name not in OF_SERVERS}
        return self.status, kept, self.body


class Site(NamedTuple):
    """A server, and a session that asks it.

    Attributes:
        session: the client.
        root: the URL, without a slash at the end.
    """

    session: aiohttp.ClientSession
    root: str

    def url(self, path: str) -> URL:
        """The URL of a path, which is taken as it is written."""
        return URL(self.root + path, encoded=True)

    async def ask(self, path: str, method: str = "GET", **options: Any) -> Answer:
        """One request."""
        async with self.session.request(method, self.url(path), **options) as response:
            return Answer(response, await response.read())


Serve = Callable[[Limiter, Policies], AbstractAsyncContextManager[Site]]
"""Serves an application under a middleware."""

SESSION: Final[dict[str, Any]] = {"skip_auto_headers": ["Accept-Encoding"]}


@contextlib.asynccontextmanager
async def site_at(root: str) -> AsyncIterator[Site]:
    """A server that is there, with a client for it."""
    async with aiohttp.ClientSession(**SESSION) as session:
        yield Site(session, root)


def aiohttp_served(make_client: AiohttpClient) -> Serve:
    """Serves an aiohttp application by `aiohttp_client`."""

    @contextlib.asynccontextmanager
    async def serve(limiter: Limiter, policies: Policies) -> AsyncIterator[Site]:
        client = await make_client(aiohttp_app(limiter, policies), **SESSION)
        try:
            yield Site(client.session, str(client.make_url("/")).rstrip("/"))
        finally:
            await client.close()

    return serve


def aiohttp_app(limiter: Limiter, policies: Policies) -> web.Application:
    """An aiohttp application that opens the limiter itself."""

    async def hello(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"hello {await request.text()}")

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"streamed")
        return response

    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return web.Response(text="slow")

    async def socket(request: web.Request) -> web.StreamResponse:
        answer = web.WebSocketResponse()
        await answer.prepare(request)
        await answer.send_str("connected")
        await answer.close()
        return answer

    app = web.Application()
    app.router.add_route("*", "/hello", hello)
    app.router.add_get("/stream", stream)
    app.router.add_get("/slow", slow)
    app.router.add_get("/socket", socket)
    setup(app, limiter, policies)
    return app


@contextlib.asynccontextmanager
async def asgi_served(limiter: Limiter, policies: Policies) -> AsyncIterator[Site]:
    """A Starlette application that opens the limiter in its lifespan, under uvicorn."""

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"hello {(await request.body()).decode()}")

    async def stream(_: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"stre"
            yield b"amed"

        return StreamingResponse(pieces())

    async def slow(_: Request) -> PlainTextResponse:
        await asyncio.sleep(0.2)
        return PlainTextResponse("slow")

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("connected")
        await websocket.close()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[MutableMapping[str, Any]]:
        async with limiter:
            yield {}

    routes = [
        Route("/hello", hello, methods=["GET", "POST"]),
        Route("/stream", stream),
        Route("/slow", slow),
        WebSocketRoute("/socket", socket),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_middleware(LimitMiddleware, limiter=limiter, policies=policies)
    config = uvicorn.Config(app, port=0, ws="wsproto", log_level="error", proxy_headers=False)
    server = uvicorn.Server(config)
    # Signals are the test runner's, so not `serve`, which would take them.
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    serving = asyncio.get_running_loop().create_task(server.main_loop())
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with site_at(f"http://127.0.0.1:{port}") as site:
            yield site
    finally:
        server.should_exit = True
        await serving
        await server.shutdown()
