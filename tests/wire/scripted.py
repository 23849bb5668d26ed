"""An origin that answers by script: given bytes, pauses, events to wait for, kinds of ending.

The script of a request is found by its path, so that one origin behind one gateway serves any
number of cases. What it is sent is noted, with the connection over which it came.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.e2e.raw import TIMEOUT_S, RawConnection, RawUpstream, header_values


class End(Enum):
    """How a script ends its connection; without one it waits for the next request."""

    FIN = "closed in order"
    RST = "reset"


@dataclass(frozen=True)
class Pause:
    """Nothing for some time."""

    seconds: float


class Read(Enum):
    """What a script reads before it goes on; without one the body is read before all."""

    BODY = "the body of the request"
    NOTHING = "nothing: its body is never read"


Step = bytes | Pause | End | Read | threading.Event
Script = Sequence[Step]


@dataclass
class Asked:
    """A request as it came.

    Attributes:
        connection: the number of its connection.
        head: with its empty line.
        path: of its target, without the query.
        body: as far as the script has read it, without chunks.
    """

    connection: int
    head: bytes
    path: str
    body: bytes = b""


class ScriptedOrigin(RawUpstream):
    """Serves scripts, each connection in a thread.

    Args:
        scripts: by path.

    Attributes:
        scripts: as given; may be added to.
        cut: how what a script says is sent: `whole`, `bytes` for one by one, `random` for
            pieces of any size.
        asked: every request.
        ended: the numbers of the connections that have ended, and when.
    """

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = dict(scripts)
        self.cut = "whole"
        self.asked: list[Asked] = []
        self.ended: dict[int, float] = {}
        self._numbers = itertools.count()
        self._random = random.Random(0)
        super().__init__(self._follow_scripts)

    def all(self, path: str) -> list[Asked]:
        """The requests for a path."""
        return [asked for asked in self.asked if asked.path == path]

    def _follow_scripts(self, connection: RawConnection) -> None:
        number = next(self._numbers)
        try:
            self._converse(connection, number)
        finally:
            self.ended[number] = time.monotonic()

    def _converse(self, connection: RawConnection, number: int) -> None:
        while head := connection.read_head():
            path = head.split(b" ")[1].partition(b"?")[0].decode("latin-1")
            asked = Asked(number, head, path)
            self.asked.append(asked)
            script = self.scripts[path]
            if not any(isinstance(step, Read) for step in script):
                asked.body = _read_body(connection, head)
            if self._follow(connection, asked, script):
                return

    def _follow(self, connection: RawConnection, asked: Asked, script: Script) -> bool:
        """Do as a script says; returns whether that was the end of the connection."""
        for step in script:
            if isinstance(step, bytes):
                self._send(connection, step)
            elif isinstance(step, Pause):
                time.sleep(step.seconds)
            elif isinstance(step, threading.Event):
                assert step.wait(TIMEOUT_S)
            elif step is Read.BODY:
                asked.body = _read_body(connection, asked.head)
            elif step is End.RST:
                connection.reset()
                return True
            elif step is End.FIN:
                return True
        return False

    def _send(self, connection: RawConnection, data: bytes) -> None:
        while data:
            size = {"whole": len(data), "bytes": 1}.get(self.cut, self._random.randint(1, 40))
            connection.send(data[:size])
            data = data[size:]


def until(condition: Callable[[], object]) -> None:
    """Wait for something that happens in another thread or process."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _read_body(connection: RawConnection, head: bytes) -> bytes:
    if header_values(head, "Transfer-Encoding"):
        body = b""
        while size := int(_read_line(connection), 16):
            body += connection.read_body(size + 2)[:-2]
        while _read_line(connection):
            pass
        return body
    return b"".join(
        connection.read_body(int(size)) for size in header_values(head, "Content-Length")
    )


def _read_line(connection: RawConnection) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        more = connection.read_body(1)
        if not more:
            raise ConnectionError
        line += more
    return line[:-2]
