"""An upstream that fails as it is told, by the path, in one phase of the exchange.

`/FAULT/ID` names what goes wrong; `/counts` tells how often the whole head of each ID has arrived.
It is a process of its own, so that it can be killed and frozen: `python -m tests.e2e.faulty PORT`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from tests.breaking import abort, reset

NEVER_S: Final = 60.0


class Exchange:
    """One request, whose head is there, and the connection that it came over."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
    ) -> None:
        self.reader = reader
        self.writer = writer
        first, *fields = head.decode("latin-1").split("\r\n")
        self.fault, self.id = first.split(" ")[1].strip("/").partition("/")[::2]
        sizes = [line[15:] for line in fields if line.lower().startswith("content-length:")]
        self.size = int(sizes[0]) if sizes else 0

    @property
    def answer(self) -> bytes:
        """The right one: the id, some times, so that it has a middle."""
        body = self.id.encode() * 20
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def read_body(self) -> None:
        """Read the request to its end."""
        await self.reader.readexactly(self.size)

    async def send(self, data: bytes) -> None:
        """Write, and let it arrive: a reset overtakes what was not read."""
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0.02)

    def reset(self) -> None:
        """End with a reset."""
        reset(self.writer)


async def _ok(exchange: Exchange) -> None:
    await exchange.read_body()
    exchange.writer.write(exchange.answer)


async def _reset_in_request(exchange: Exchange) -> None:
    await exchange.reader.readexactly(exchange.size // 2)
    exchange.reset()


async def _reset_before_answer(exchange: Exchange) -> None:
    await exchange.read_body()
    exchange.reset()


async def _close_before_answer(exchange: Exchange) -> None:
    await exchange.read_body()
    exchange.writer.close()


async def _silent(exchange: Exchange) -> None:
    await exchange.read_body()
    await asyncio.sleep(NEVER_S)


async def _reset_in_head(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer[:20])
    exchange.reset()


async def _close_in_head(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer[:20])
    exchange.writer.close()


async def _stall_in_head(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer[:20])
    await asyncio.sleep(NEVER_S)


async def _reset_in_body(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer[:-10])
    exchange.reset()


async def _close_in_body(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer[:-10])
    exchange.writer.close()


async def _close_in_chunk(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc")
    exchange.writer.close()


async def _stall_in_body(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer[:-10])
    await asyncio.sleep(NEVER_S)


async def _reset_after_answer(exchange: Exchange) -> None:
    await exchange.read_body()
    await exchange.send(exchange.answer)
    exchange.reset()


async def _close_after_answer(exchange: Exchange) -> None:
    await exchange.read_body()
    exchange.writer.write(exchange.answer)
    exchange.writer.close()


async def _slow(exchange: Exchange) -> None:
    await exchange.read_body()
    step = len(exchange.answer) // 4
    for start in range(0, len(exchange.answer), step):
        await exchange.send(exchange.answer[start : start + step])


async def _nonsense(exchange: Exchange) -> None:
    await exchange.read_body()
    exchange.writer.write(b"500 what?\r\n\r\n")


OK: Final = frozenset({"200"})
BROKEN: Final = frozenset({"broken", "502"})
"""502 if it is known to be broken before anything of it was passed on."""

FAULTS: Final[dict[str, tuple[Callable[[Exchange], Awaitable[None]], frozenset[str]]]] = {
    "ok": (_ok, OK),
    "slow": (_slow, OK),
    "reset-in-request": (_reset_in_request, frozenset({"502"})),
    "reset-before-answer": (_reset_before_answer, frozenset({"502"})),
    "close-before-answer": (_close_before_answer, frozenset({"502"})),
    "silent": (_silent, frozenset({"504"})),
    "reset-in-head": (_reset_in_head, frozenset({"502"})),
    "close-in-head": (_close_in_head, frozenset({"502"})),
    "stall-in-head": (_stall_in_head, frozenset({"504"})),
    "reset-in-body": (_reset_in_body, BROKEN),
    "close-in-body": (_close_in_body, BROKEN),
    "close-in-chunk": (_close_in_chunk, BROKEN),
    "stall-in-body": (_stall_in_body, BROKEN),
    "reset-after-answer": (_reset_after_answer, OK),
    "close-after-answer": (_close_after_answer, OK),
    "nonsense": (_nonsense, frozenset({"502"})),
}
"""What each does, and what a client may get: a status with a whole body, or half an answer."""


async def _serve(port: int) -> None:
    counts: Counter[str] = Counter()
    busy: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        task.add_done_callback(busy.discard)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                exchange = Exchange(reader, writer, head)
                if exchange.fault == "counts":
                    body = json.dumps(counts).encode()
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                    )
                    continue
                counts[exchange.id] += 1
                await FAULTS[exchange.fault][0](exchange)
        except (OSError, asyncio.IncompleteReadError):
            abort(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
