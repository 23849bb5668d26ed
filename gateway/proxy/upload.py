"""The body of a request on its way to the upstream, even while it is still arriving."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from aiohttp.hdrs import CONTENT_LENGTH
from aiohttp.streams import EMPTY_PAYLOAD

from gateway.base.errors import BadRequestError, ClientError, UpstreamError

if TYPE_CHECKING:
    from gateway.proxy.client.handler import RequestBody, ServedConnection
    from gateway.proxy.request import Request
    from gateway.proxy.routes import Route
    from gateway.proxy.upstream.connection import UpstreamConnection


class Upload:
    """A body that has not arrived completely.

    Args:
        payload: where it arrives.
        client: the connection that it comes from.
        is_chunked: whether its length is not known beforehand.
        max_body: most bytes in it; None for any.
        max_kept: most bytes of it to keep once they are sent.

    Attributes:
        error: why it ended early, if the client is to blame.
        kept: what was sent so far; None if that is too much to keep.
        quiet_s: how long a stream of messages may pause, in seconds; 0 for the limits of a body.
        is_done: whether all of it was sent.
    """

    def __init__(
        self,
        payload: RequestBody,
        client: ServedConnection,
        *,
        is_chunked: bool,
        max_body: int | None,
        max_kept: int = 0,
    ) -> None:
        self._payload = payload
        self._client = client
        self._is_chunked = is_chunked
        self._max_body = max_body
        self._max_kept = max_kept
        self.quiet_s = 0.0
        self.kept: bytes | None = b"" if max_kept else None
        self.error: ClientError | None = None
        self.is_done = False

    async def pump(self, connection: UpstreamConnection) -> None:
        """Send the body as it arrives; close the upstream connection on failure."""
        try:
            await self._pump(connection)
        except ClientError as error:
            self._client.due = inf
            self.error = self.error or error
            connection.abort()
        except UpstreamError:
            # The waiter for the response gets the same error.
            pass

    async def _pump(self, connection: UpstreamConnection) -> None:
        size = 0
        waited_s = 0.0
        time = asyncio.get_running_loop().time
        while True:
            if self._client.transport is None:
                # The client left before this began; waiting would be an error in aiohttp.
                connection.abort()
                return
            self._client.expect_body(self._is_late, size, waited_s)
            began_at = time()
            if self.quiet_s:
                self._client.due = began_at + self.quiet_s
            data = await self._payload.readany()
            self._client.due = inf
            waited_s += time() - began_at
            if not data:
                break
            size += len(data)
            if self._max_body is not None and size > self._max_body:
                raise BadRequestError("The request's body is too large", 413, kind="too_large")
            if self.kept is not None:
                self.kept = self.kept + data if size <= self._max_kept else None
            await connection.write(data, is_chunked=self._is_chunked)
        await connection.finish_body(is_chunked=self._is_chunked)
        self.is_done = True

    def _is_late(self) -> None:
        self.error = BadRequestError(
            "The request's body did not arrive in time", 408, kind="body_timeout"
        )
        self._payload.set_exception(self.error)


def take_body(
    request: Request, route: Route, known: bytes | None
) -> tuple[bytes | None, bytes, Upload | None]:
    """Return the body if it is complete, its framing, and otherwise its `Upload`.

    Args:
        request: the request that it belongs to.
        route: has the limit of its size.
        known: the body, if it was taken before.

    Raises:
        BadRequestError: it is larger than its route allows.
    """
    payload = request.payload
    if payload is EMPTY_PAYLOAD:
        # An announced length of 0 stays announced.
        is_announced = CONTENT_LENGTH in request.headers
        return b"", b"Content-Length: 0\r\n" if is_announced else b"", None
    length = None if request.message.chunked else int(request.headers[CONTENT_LENGTH])
    max_body = route.max_body
    if payload.is_eof() and payload.exception() is None:
        if known is None:
            known = payload.read_nowait()
            _check_size(len(known), max_body)
        return known, b"Content-Length: %d\r\n" % len(known), None
    upload = Upload(
        payload,
        request.connection,
        is_chunked=length is None,
        max_body=max_body,
        max_kept=0 if route.retry is None else route.retry.max_body,
    )
    if length is None:
        return None, b"Transfer-Encoding: chunked\r\n", upload
    _check_size(length, max_body)
    return None, b"Content-Length: %d\r\n" % length, upload


def _check_size(size: int, max_body: int | None) -> None:
    if max_body is not None and size > max_body:
        raise BadRequestError("The request's body is too large", 413, kind="too_large")
