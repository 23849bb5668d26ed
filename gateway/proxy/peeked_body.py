"""A body whose beginning is read before its request is decided on, and then sent on as it came.

It takes the place of the body as it arrives, so everything after the decision is the same: what was
read is only read again, byte for byte.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Final

from aiohttp.hdrs import CONTENT_LENGTH, EXPECT
from aiohttp.streams import EMPTY_PAYLOAD

from gateway.base.errors import BadRequestError, ClientError
from gateway.routing.body_values import compile_body_value
from gateway.routing.parameters import compile_parameter
from gateway.routing.values import AMBIGUOUS, Read

if TYPE_CHECKING:
    from gateway.proxy.client.handler import RequestBody, ServedConnection
    from gateway.proxy.request import Request

PEEK_MAX: Final = 64 * 1024
"""Bytes of a body that are read for a key; a larger one counts as one without it."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class PeekedBody:
    """A `RequestBody` that has read ahead in another.

    Args:
        body: the body as it arrives.

    Attributes:
        whole: all of it; None if it is too large, or not all of it was read.
    """

    __slots__ = ("_body", "_kept", "whole")

    def __init__(self, body: RequestBody) -> None:
        self._body = body
        self._kept = b""
        self.whole: bytes | None = None

    def __repr__(self) -> str:
        return f"<PeekedBody: {len(self._kept)} bytes kept>"

    def take(self) -> bool:
        """Read what is here; return whether no more is needed.

        Raises:
            ClientError: what the client sent is no body.
        """
        body = self._body
        error = body.exception()
        if isinstance(error, ClientError):
            raise error
        if error is not None:
            # The client is gone.
            return True
        is_whole = body.is_eof()
        self._kept += body.read_nowait()
        if is_whole and len(self._kept) <= PEEK_MAX:
            self.whole = self._kept
        return is_whole or len(self._kept) > PEEK_MAX

    async def fill(self, client: ServedConnection) -> None:
        """Read until no more is needed.

        Raises:
            ClientError: the client was too slow, or what it sent is no body.
        """
        waited_s = 0.0
        time = asyncio.get_running_loop().time
        while not self.take():
            if client.transport is None:
                # The client left: its request ends in another place.
                return
            client.expect_body(self._is_late, len(self._kept), waited_s)
            began_at = time()
            data = await self._body.readany()
            client.due = inf
            waited_s += time() - began_at
            self._kept += data

    def _is_late(self) -> None:
        message = "The request's body did not arrive in time"
        self._body.set_exception(BadRequestError(message, 408, kind="body_timeout"))

    # What those that come after it read.

    def is_eof(self) -> bool:
        """Return whether all of it has arrived."""
        return self._body.is_eof()

    def exception(self) -> BaseException | type[BaseException] | None:
        """Return why no more can be read."""
        return self._body.exception()

    def set_exception(self, exc: BaseException, /) -> None:
        """Let readers fail."""
        self._body.set_exception(exc)

    def read_nowait(self) -> bytes:
        """Return all that is here."""
        kept, self._kept = self._kept, b""
        return kept + self._body.read_nowait()

    async def readany(self) -> bytes:
        """Return what is here, once there is anything; nothing at the end."""
        if self._kept:
            kept, self._kept = self._kept, b""
            return kept
        return await self._body.readany()


def known_body(data: bytes) -> PeekedBody:
    """Return a body that is known, to ask what would become of a request."""
    body = PeekedBody(EMPTY_PAYLOAD)
    body.whole = data
    return body


def peek(request: Request) -> PeekedBody | None:
    """Let the body of a request be read ahead; return it if that must be waited for."""
    payload = request.payload
    if payload is EMPTY_PAYLOAD or int(request.headers.get(CONTENT_LENGTH, "0")) > PEEK_MAX:
        return None
    body = request.payload = PeekedBody(payload)
    if body.take():
        return None
    if EXPECT in request.headers and not request.is_http_1_0:
        # The client waits for this; that the upstream may say it once more is allowed.
        request.connection.send(_CONTINUE)
    return body


def compile_body_reader(kind: str, name: str) -> Read:
    """Return a function that reads a field of the bodies of requests; arguments as there."""
    read_value = compile_body_value(kind, name)
    in_query = compile_parameter(name)

    def read(request: Request) -> object:
        payload = request.payload
        whole = payload.whole if isinstance(payload, PeekedBody) else None
        if whole is None:
            return None
        if kind == "form" and request.query and in_query(request.query) != []:
            # Many servers read both as one, and not all of them prefer the form.
            return AMBIGUOUS
        return read_value(whole, request.headers)

    return read  # type: ignore[return-value]  # only requests of the proxy are read here
