"""Clients that do what clients should not, one connection each."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from tests.breaking import abort, reset

HEAD: Final = b"GET /ok/rude; HTTP/1.1\r\nHost: a.test\r\n"


async def _leave_in_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)


async def _leave_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /ok/rude; HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\nhalf")
    await asyncio.sleep(0.02)


async def _leave_before_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD.replace(b"/ok/", b"/slow/") + b"\r\n")
    await asyncio.sleep(0.01)


async def _leave_in_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD.replace(b"/ok/", b"/slow/") + b"\r\n")
    await reader.read(1)


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.1)


async def _many_in_a_row(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((HEAD + b"\r\n") * 50)
    await asyncio.sleep(0.02)


async def _nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    await reader.read()


async def _stop_in_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    await reader.read()


async def _stop_in_chunk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"POST /ok/rude; HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    )
    await reader.read()


async def _half_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    writer.write_eof()
    await reader.read(100)


Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ACTS: Final[tuple[Act, ...]] = (
    *(_leave_in_head, _leave_in_body, _leave_before_answer, _leave_in_answer, _say_nothing),
    *(_many_in_a_row, _nonsense, _stop_in_head, _stop_in_chunk, _half_close),
)


async def be_rude(port: int, seed: int, times: int) -> None:
    """Do so many of these, one after the other, and end half of them with a reset."""
    chance = random.Random(seed)
    for _ in range(times):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(10):
                with contextlib.suppress(OSError):
                    await chance.choice(ACTS)(reader, writer)
            if chance.random() < 0.5:
                reset(writer)
        finally:
            abort(writer)
            with contextlib.suppress(OSError):
                await writer.wait_closed()
