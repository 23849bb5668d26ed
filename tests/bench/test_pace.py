"""The open-loop generator keeps its schedule whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from bench.errors import BenchError
from bench.load import CONNECTIONS
from bench.pace import measure

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno"
STALL_US = 800_000


@contextlib.asynccontextmanager
async def serving(answer: Callable[[], bytes]) -> AsyncIterator[str]:
    """A server that gives every request head what `answer` says; an empty answer closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                data = answer()
                if not data:
                    break
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_rate_is_kept() -> None:
    """Exactly as many requests are sent as the schedule holds, and each is answered once."""
    async with serving(lambda: OK) as url:
        found = await asyncio.to_thread(measure, url, 500, 1.0)
    assert found.requests == 500
    assert 0 < found.p50_us <= found.p99_us <= found.max_us


async def test_a_stall_is_charged_to_all_that_it_delays() -> None:
    """A stall shows in every request that was due in it, sent or not: not in one only."""
    calls = iter(range(10_000))

    def answer() -> bytes:
        if next(calls) == 50:
            time.sleep(STALL_US / 1e6)  # the whole server, on purpose
        return OK

    async with serving(answer) as url:
        found = await asyncio.to_thread(measure, url, 500, 1.0)
    # 400 of 500 requests are due during the stall, many more than there are connections; half
    # of all must have waited for a third of it. A closed loop, or latency counted from when a
    # request could at last be sent, would show a median of less than a millisecond.
    assert found.requests == 500
    assert found.max_us > STALL_US * 0.9
    assert found.p50_us > STALL_US / 4


@pytest.mark.parametrize("bad", [REFUSED, b""])
async def test_a_wrong_answer_spoils_the_run(bad: bytes) -> None:
    """An answer that is not 200, or a closed connection, gives an error instead of a figure."""

    def answers() -> Iterator[bytes]:
        yield from [OK] * (CONNECTIONS * 2)
        while True:
            yield bad

    stream = answers()
    async with serving(lambda: next(stream)) as url:
        with pytest.raises(BenchError, match="missing or not 200"):
            await asyncio.to_thread(measure, url, 500, 0.6)
