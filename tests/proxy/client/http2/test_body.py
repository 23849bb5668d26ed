"""Bodies as they arrive in frames."""

from __future__ import annotations

import asyncio

import pytest

from gateway.base.errors import BadRequestError
from gateway.proxy.client.http2.body import StreamBody


class Owner:
    """Adds up what was read."""

    def __init__(self) -> None:
        self.read = 0

    def body_read(self, size: int) -> None:
        """Note it."""
        self.read += size


async def test_what_is_read_may_be_sent_again() -> None:
    """The owner is told of each byte once, when it is read and not when it arrives."""
    owner = Owner()
    body = StreamBody(owner)
    body.feed(b"ab")
    body.feed(b"c")
    assert (owner.read, body.size, body.is_eof()) == (0, 3, False)
    assert await body.readany() == b"abc"
    assert (owner.read, body.size) == (3, 0)
    body.feed(b"d")
    body.end()
    assert body.is_eof()
    assert body.read_nowait() == b"d"
    assert await body.readany() == b""
    assert owner.read == 4


async def test_readers_wait() -> None:
    """A reader waits for the next piece, the end, or an error."""
    for what in ("piece", "end", "error"):
        body = StreamBody(Owner())
        reader = asyncio.ensure_future(body.readany())
        await asyncio.sleep(0)
        assert not reader.done()
        if what == "piece":
            body.feed(b"x")
            assert await reader == b"x"
        elif what == "end":
            body.end()
            assert await reader == b""
        else:
            body.set_exception(BadRequestError("late"))
            with pytest.raises(BadRequestError):
                await reader
            assert isinstance(body.exception(), BadRequestError)


async def test_what_is_dropped() -> None:
    """What was not read is counted once, when it is dropped."""
    owner = Owner()
    body = StreamBody(owner)
    body.feed(b"abc")
    assert (body.drop(), body.drop(), owner.read) == (3, 0, 0)
    assert body.read_nowait() == b""
