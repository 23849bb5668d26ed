"""The body of one request, as its frames arrive: what aiohttp's `StreamReader` is to HTTP/1.1.

The client may send more only as bytes are read from here, so that the stream's window bounds what
is kept.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class BodyOwner(Protocol):
    """Is told what was read."""

    def body_read(self, size: int) -> None:
        """Note that so many bytes were read."""


class StreamBody:
    """A body that has not ended.

    Args:
        owner: lets the client send more.
    """

    __slots__ = ("_error", "_is_whole", "_owner", "_pieces", "_waiter", "size")

    def __init__(self, owner: BodyOwner) -> None:
        self._owner = owner
        self._pieces: list[bytes] = []
        self._is_whole = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.size = 0

    def __repr__(self) -> str:
        return f"<StreamBody: {self.size} bytes{', whole' if self._is_whole else ''}>"

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._pieces.append(data)
        self.size += len(data)
        self._wake()

    def end(self) -> None:
        """Note that the body is complete."""
        self._is_whole = True
        self._wake()

    def drop(self) -> int:
        """Drop what was not read; return how many bytes."""
        self._pieces.clear()
        size, self.size = self.size, 0
        return size

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What is read from it; as in aiohttp's `StreamReader`.

    def is_eof(self) -> bool:
        """Return whether all of it has arrived."""
        return self._is_whole

    def exception(self) -> BaseException | None:
        """Return why no more can be read."""
        return self._error

    def set_exception(self, exc: BaseException) -> None:
        """Let readers fail."""
        self._error = exc
        self._wake()

    def read_nowait(self) -> bytes:
        """Return all that is here."""
        if self._error is not None:
            raise self._error
        if not self._pieces:
            return b""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        self._owner.body_read(len(data))
        return data

    async def readany(self) -> bytes:
        """Return what is here, once there is anything; nothing at the end."""
        while not self._pieces and not self._is_whole and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.read_nowait()
