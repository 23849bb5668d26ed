"""A request's body on its way to the upstream, while it is still arriving."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from aiohttp.web_protocol import RequestPayloadError

from gateway.errors import BadRequestError, ClientError, UpstreamError

if TYPE_CHECKING:
    from aiohttp.streams import StreamReader

    from gateway.proxy.client import ClientConnection
    from gateway.proxy.upstream import UpstreamConnection


class Upload:
    """A body that is not here yet.

    Args:
        payload: where it arrives.
        client: who sends it.
        is_chunked: whether its length is not known beforehand.
        max_body: bytes that it may have; None for any.

    Attributes:
        error: why it ended early, if the client is to blame.
        is_done: whether all of it was sent.
    """

    def __init__(
        self,
        payload: StreamReader,
        client: ClientConnection,
        *,
        is_chunked: bool,
        max_body: int | None,
    ) -> None:
        self._payload = payload
        self._client = client
        self._is_chunked = is_chunked
        self._max_body = max_body
        self.error: ClientError | None = None
        self.is_done = False

    async def pump(self, connection: UpstreamConnection) -> None:
        """Send the body as it comes; a failure closes the upstream connection."""
        try:
            await self._pump(connection)
        except ClientError as error:
            self.error = self.error or error
            connection.abort()
        except RequestPayloadError:
            self._client.due = inf
            self.error = BadRequestError("The request's body is not valid", kind="framing")
            connection.abort()
        except UpstreamError:
            # Whoever waits for the answer is told the same.
            pass

    async def _pump(self, connection: UpstreamConnection) -> None:
        size = 0
        waited_s = 0.0
        time = asyncio.get_running_loop().time
        while True:
            if self._client.transport is None:
                # The client left before this began; waiting would be an error of aiohttp's.
                connection.abort()
                return
            self._client.expect_body(self._is_late, size, waited_s)
            began_at = time()
            data = await self._payload.readany()
            self._client.due = inf
            waited_s += time() - began_at
            if not data:
                break
            size += len(data)
            if self._max_body is not None and size > self._max_body:
                raise BadRequestError("The request's body is too large", 413, kind="too_large")
            await connection.write(chunk(data, is_chunked=self._is_chunked))
        if self._is_chunked:
            await connection.write(b"0\r\n\r\n")
        self.is_done = True
        connection.sent()

    def _is_late(self) -> None:
        self.error = BadRequestError(
            "The request's body did not arrive in time", 408, kind="body_timeout"
        )
        self._payload.set_exception(self.error)


def chunk(data: bytes, *, is_chunked: bool) -> bytes:
    """A piece of a body as it is written (RFC 9112, section 7.1, where it is chunked)."""
    return b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data
