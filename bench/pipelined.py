"""Load of requests that do not wait for each other's answers, over plain TCP.

Each of some connections is sent a batch, then all answers are awaited, and so on: the server always
has the batches of the others to work on. What is sent is made before, and what is heard is only
counted, so this end needs a fraction of what any server does.
"""

from __future__ import annotations

import gc
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench.errors import BenchError

WAIT_S = 10.0
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Batch:
    """What is sent at a time.

    Attributes:
        data: the requests.
        requests: how many they are.
        count: how many units there are in what was heard, and
        units: how many of them are one answer: answers may be cut anywhere.
    """

    data: bytes
    requests: int
    count: Callable[[bytes], int]
    units: int = 1


def flood(port: int, batch: Batch, seconds: float, connections: int) -> float:
    """Requests answered in a second.

    Args:
        port: of 127.0.0.1.
        batch: what each connection sends at a time.
        seconds: how long.
        connections: how many.

    Raises:
        BenchError: an answer did not come, or a connection ended.
    """
    with ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        missing: dict[socket.socket, int] = {}
        for _ in range(connections):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            waiting.register(one, selectors.EVENT_READ)
            one.sendall(batch.data)
            missing[one] = batch.requests * batch.units
        gc.disable()
        try:
            return _answered(waiting, missing, batch, seconds) / batch.units / seconds
        except OSError as error:
            raise BenchError(f"a connection failed: {error}") from error
        finally:
            gc.enable()


def _answered(
    waiting: selectors.BaseSelector,
    missing: dict[socket.socket, int],
    batch: Batch,
    seconds: float,
) -> int:
    answered = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ready = waiting.select(WAIT_S)
        if not ready:
            raise BenchError("no answer")
        for key, _ in ready:
            one = key.fileobj
            assert isinstance(one, socket.socket)
            heard = one.recv(_CHUNK)
            if not heard:
                raise BenchError("the server closed a connection")
            number = batch.count(heard)
            answered += number
            missing[one] -= number
            if not missing[one]:
                one.sendall(batch.data)
                missing[one] = batch.requests * batch.units
    return answered


def ask(port: int, data: bytes, size: int) -> bytes:
    """Send something, and hear so many bytes."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as one:
        one.sendall(data)
        heard = b""
        while len(heard) < size and (more := one.recv(_CHUNK)):
            heard += more
        return heard
