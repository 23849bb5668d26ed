"""The limiter under an ASGI application, such as Starlette's or FastAPI's.

`app.add_middleware(LimitMiddleware, limiter=limiter, policies="pay")`. The limiter is opened by
the application, in its lifespan, which passes through untouched.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from multidict import CIMultiDict

from gateway.http.answer import Answer
from gateway.integrations.guard import Fields, Guard, Head, Policies, added_fields
from gateway.library import Limiter
from gateway.library.decision import split_fields
from gateway.limiter.decider import Outcome

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY_VIOLATION: Final = 1008
"""The close code of a refused handshake (RFC 6455, section 7.4.1); servers then answer 403."""
_DENIAL: Final = "websocket.http.response"
_BEGINS: Final = frozenset({"http.response.start", "websocket.accept", f"{_DENIAL}.start"})
"""Messages that contain the header fields of a response."""


class LimitMiddleware:
    """Limits requests and WebSocket handshakes.

    Args:
        app: the application for admitted requests.
        limiter: the limiter with the policies; it must be open when requests arrive.
        policies: the name of one, several names, or a mapping from patterns such as `POST /v1/pay`
            or `/v1/**` to these; requests that match no pattern are not limited.

    Raises:
        ConfigError: a pattern is not valid.
        ValueError: there is no such policy.
    """

    def __init__(self, app: ASGIApp, limiter: Limiter, policies: Policies) -> None:
        self._app = app
        self._guard = Guard(limiter, policies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket; lifespan and the rest are passed through."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = [one for one in scope["headers"] if not self._guard.is_shadow(one[0])]
        if len(headers) < len(scope["headers"]):
            # A framework such as Django may treat them as the field that is counted by.
            scope = {**scope, "headers": headers}
        client = _ClientMessages(receive)
        try:
            fields, answer, slot = await self._guard.admit(_head(scope), client.hold)
            if answer is None:
                async with slot:
                    await self._app(scope, client.receive, _adding(send, fields))
            elif scope["type"] == "http":
                await _answer(_adding(send, fields), answer, "http.response")
            else:
                await _deny(scope, client, _adding(send, fields), answer)
        except _ClientLeft:
            return
        finally:
            await client.aclose()


class _ClientLeft(Exception):
    """The client has left."""


class _ClientMessages:
    """Messages of a client, read ahead while its request waits, to notice if it leaves.

    It reads one message at a time, and none after a piece of an unfinished body: everything read
    here must be kept.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ahead: deque[Message] = deque()
        self._next: asyncio.Task[Message] | None = None

    async def receive(self) -> Message:
        """Return the next message, for the application."""
        if self._ahead:
            return self._ahead.popleft()
        if self._next is not None:
            begun, self._next = self._next, None
            return await begun
        return await self._receive()

    async def hold(self, turn: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Await a turn. Raises `_ClientLeft` if the turn was given back because the client left."""
        waiting = asyncio.get_running_loop().create_task(turn)
        try:
            while not waiting.done():
                awaited: set[asyncio.Task[Any]] = {waiting}
                if not self._ahead or not self._ahead[-1].get("more_body", False):
                    self._next = self._next or asyncio.get_running_loop().create_task(self._read())
                    awaited.add(self._next)
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                self._keep()
            return waiting.result()
        finally:
            await _cancel(waiting)

    async def aclose(self) -> None:
        """Stop reading."""
        if self._next is not None:
            await _cancel(self._next)

    async def _read(self) -> Message:
        return await self._receive()

    def _keep(self) -> None:
        if self._next is not None and self._next.done():
            message = self._next.result()
            self._next = None
            self._ahead.append(message)
            if message["type"] in {"http.disconnect", "websocket.disconnect"}:
                raise _ClientLeft


async def _cancel(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _head(scope: Scope) -> Head:
    headers = CIMultiDict(
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))
        for name, value in scope["headers"]
    )
    client = scope.get("client")
    raw_path: bytes | None = scope.get("raw_path")
    path = raw_path.decode("latin-1") if raw_path else quote(scope["path"])
    return Head(
        client[0] if client else "",
        scope.get("method", "GET"),
        path.partition("?")[0],
        scope["query_string"].decode("latin-1"),
        headers,
    )


def _encode(fields: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in fields]


def _adding(send: Send, fields: Fields) -> Send:
    """Return a `send` that adds the fields to the response."""
    if not fields:
        return send

    async def send_with_fields(message: Message) -> None:
        if message["type"] in _BEGINS:
            headers = list(message.get("headers", ()))
            gone, added = added_fields([name.decode("latin-1") for name, _ in headers], fields)
            kept = [one for one in headers if one[0].decode("latin-1").lower() not in gone]
            message = {**message, "headers": [*kept, *_encode(added)]}
        await send(message)

    return send_with_fields


async def _answer(send: Send, answer: Answer, kind: str) -> None:
    headers = _encode(split_fields(answer.fields))
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": answer.body})


async def _deny(scope: Scope, client: _ClientMessages, send: Send, answer: Answer) -> None:
    """Refuse a handshake, with a normal response if the server supports that."""
    await client.receive()  # "websocket.connect" comes before anything may be sent
    if _DENIAL in (scope.get("extensions") or {}):
        await _answer(send, answer, _DENIAL)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
