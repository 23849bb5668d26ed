"""Many clients at a time, each of which notes what became of every request."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.breaking import abort

PATIENCE_S: Final = 30.0
"""Within this every answer is there, or the connection ends: timeouts are far below it."""


@dataclass
class Note:
    """One request and its fate: a status, `broken`, or what must never be.

    Attributes:
        fault: what its upstream was told to do.
        id: as in its path.
        method: GET or POST.
        fate: a status, or `broken` for half an answer.
    """

    fault: str
    id: str
    method: str
    fate: str


@dataclass
class Crowd:
    """Clients of one gateway.

    Attributes:
        port: where it listens.
        faults: what they ask the upstream for, at random.
        seed: of that, and of its ids: no two crowds of an upstream share it.
        notes: of all requests.
    """

    port: int
    faults: Sequence[str]
    seed: int
    notes: list[Note] = field(default_factory=list)
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def ask(self, clients: int, requests: int) -> None:
        """So many clients at a time, each with so many requests in a row."""
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client(requests))

    async def _client(self, requests: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for _ in range(requests):
            if writer.transport.is_closing():
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            note = self._note()
            self.notes.append(note)
            writer.write(_request(note))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    is_last = await _answer(reader, note)
            except (OSError, asyncio.IncompleteReadError):
                note.fate = "broken" if note.fate else "nothing"
                is_last = True
            except TimeoutError:
                note.fate = "late"
                is_last = True
            if is_last:
                await _leave(writer)
        await _leave(writer)

    def _note(self) -> Note:
        method = self._random.choice(("GET", "POST"))
        name = f"{self.seed}-{next(self._ids)};"
        return Note(self._random.choice(self.faults), name, method, "")


async def _leave(writer: asyncio.StreamWriter) -> None:
    abort(writer)
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _request(note: Note) -> bytes:
    head = f"{note.method} /{note.fault}/{note.id} HTTP/1.1\r\nHost: a.test\r\n"
    if note.method == "GET":
        return f"{head}\r\n".encode()
    body = b"x" * 1000
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader, note: Note) -> bool:
    """Read one and note its fate; returns whether the connection ends with it."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    note.fate = head.split(b" ")[1].decode()
    if b"transfer-encoding: chunked" in head:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    else:
        size = int(head.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
        body = await reader.readexactly(size)
    if note.fate == "200" and body != note.id.encode() * 20:
        note.fate = "somebody else's answer"
    return b"connection: close" in head
