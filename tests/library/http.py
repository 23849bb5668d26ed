"""Applications under each middleware, served on free ports of loopback by real servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import uvicorn
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from gateway import Limiter
from gateway.integrations.aiohttp import setup
from gateway.integrations.asgi import LimitMiddleware
from gateway.integrations.guard import Policies

OWN_LIMITS: Final = {
    "X-RateLimit-Limit": "5550",
    "x-ratelimit-used": "5551",
    "RateLimit": '"theirs";r=5552',
    "Retry-After": "5553",
    "X-Kept": "yes",
}
"""What the applications say of limits of their own at /limited."""

Serve = Callable[[Limiter, Policies], AbstractAsyncContextManager[str]]
"""Serves an application under a middleware; gives its URL."""


@contextlib.asynccontextmanager
async def aiohttp_app(limiter: Limiter, policies: Policies) -> AsyncIterator[str]:
    """An aiohttp application that opens the limiter itself."""

    async def hello(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"hello {await request.text()}")

    async def limited(request: web.Request) -> web.StreamResponse:
        told = "|".join(f"{name}: {value}" for name, value in request.headers.items())
        return web.Response(text=told, headers=OWN_LIMITS)

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
    app.router.add_get("/limited", limited)
    app.router.add_get("/stream", stream)
    app.router.add_get("/slow", slow)
    app.router.add_get("/socket", socket)
    setup(app, limiter, policies)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def asgi_app(limiter: Limiter, policies: Policies) -> AsyncIterator[str]:
    """A Starlette application that opens the limiter in its lifespan, under uvicorn."""

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"hello {(await request.body()).decode()}")

    async def limited(request: Request) -> PlainTextResponse:
        told = "|".join(f"{name}: {value}" for name, value in request.headers.items())
        return PlainTextResponse(told, headers=OWN_LIMITS)

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
        Route("/limited", limited),
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
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving
        await server.shutdown()


APPS: Final[dict[str, Serve]] = {"aiohttp": aiohttp_app, "asgi": asgi_app}
