"""Open-loop load: one request every so often, whether or not the last one was answered.

`python -m bench.pace URL RATE SECONDS` prints the latencies as JSON. Requests leave on a
schedule fixed beforehand, and latency counts from the moment a request should have left: a
stall of the proxy (or of this generator) is charged to every request that it delays, not to
one (no coordinated omission). The schedule is kept by a periodic timer of the kernel
(timerfd), since the event loop's own timers are only good to a millisecond.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop

from bench.errors import BenchError
from bench.load import CONNECTIONS, HEADERS
from bench.programs import REPOSITORY, python

_LEAST_RUN_SECONDS = 0.5
_DRAIN_SECONDS = 5.0
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of one run, in microseconds from the scheduled start to the last byte."""

    requests: int
    p50_us: float
    p99_us: float
    max_us: float


def measure(url: str, rate: int, seconds: float) -> Latencies:
    """Run the generator as a process of its own, on this process's CPU.

    Raises:
        BenchError: an answer was missing or was not 200.
    """
    argv = [python(), "-m", "bench.pace", url, str(rate), str(seconds)]
    said = subprocess.run(
        argv, capture_output=True, text=True, cwd=REPOSITORY, timeout=seconds + 30, check=False
    )
    if said.returncode != 0:
        raise BenchError(f"{url} at {rate}/s: {_last_line(said.stderr)}")
    return Latencies(**json.loads(said.stdout))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1]


class _Connection(asyncio.Protocol):
    """One keep-alive connection; takes a request at a time and reports when it is answered."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._due_ns = 0
        self.transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, due_ns: int) -> None:
        self._due_ns = due_ns
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._run.answered(self, self._due_ns, self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.lost(self)


class _Run:
    """The schedule and what came of it."""

    def __init__(self, url: str, rate: int, total: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        lines = [f"GET {parts.path or '/'} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in HEADERS.items()]
        self._request = "\r\n".join([*lines, "", ""]).encode("ascii")
        self._interval_ns = _NS // rate
        self._total = total
        self._sent = 0
        self._begun_ns = 0
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[int] = deque()
        self._finished = asyncio.Event()
        self.latencies_ns: list[int] = []
        self.failures = 0

    async def go(self) -> None:
        """Open the connections, keep the schedule, wait for the last answers."""
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(
                lambda: _Connection(self), self._host, self._port
            )
            self._idle.append(connection)
        timer = _periodic_timer(self._interval_ns)
        self._begun_ns = time.monotonic_ns()
        loop.add_reader(timer, self._tick, timer)
        try:
            await self._finished.wait()
        finally:
            loop.remove_reader(timer)
            os.close(timer)
            for connection in self._idle:
                connection.transport.abort()

    def answered(self, connection: _Connection, due_ns: int, status: int) -> None:
        """An answer is complete: note it, and give the connection to who waits for one."""
        self.latencies_ns.append(time.monotonic_ns() - due_ns)
        self.failures += status != 200
        if self._waiting:
            connection.send(self._request, self._waiting.popleft())
        else:
            self._idle.append(connection)
        if len(self.latencies_ns) == self._total:
            self._finished.set()

    def lost(self, connection: _Connection) -> None:
        """A connection closed before the end: no figure can be told from such a run."""
        if not self._finished.is_set():
            self.failures += 1
            self._finished.set()
        if connection in self._idle:
            self._idle.remove(connection)

    def _tick(self, timer: int) -> None:
        for _ in range(int.from_bytes(os.read(timer, 8), sys.byteorder)):
            if self._sent == self._total:
                return
            self._sent += 1
            due_ns = self._begun_ns + self._sent * self._interval_ns
            if self._idle:
                self._idle.popleft().send(self._request, due_ns)
            else:
                self._waiting.append(due_ns)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("first", _Timespec))


def _periodic_timer(interval_ns: int) -> int:
    """A descriptor that becomes readable every `interval_ns` (timerfd_create(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    every = _Timespec(*divmod(interval_ns, _NS))
    if libc.timerfd_settime(descriptor, 0, ctypes.byref(_Itimerspec(every, every)), None) < 0:
        raise OSError(ctypes.get_errno(), "timerfd_settime")
    return descriptor


async def _run(url: str, rate: int, seconds: float) -> Latencies:
    run = _Run(url, rate, max(1, round(rate * max(seconds, _LEAST_RUN_SECONDS))))
    gc.freeze()
    gc.disable()
    await asyncio.wait_for(run.go(), seconds + _DRAIN_SECONDS)
    if run.failures:
        raise BenchError(f"{run.failures} answers were missing or not 200")
    ordered = sorted(run.latencies_ns)
    count = len(ordered)
    return Latencies(
        requests=count,
        p50_us=ordered[count // 2] / 1000,
        p99_us=ordered[count * 99 // 100] / 1000,
        max_us=ordered[-1] / 1000,
    )


def main(url: str, rate: int, seconds: float) -> None:
    """Measure and print."""
    found = uvloop.run(_run(url, rate, seconds))
    fields = {"requests": found.requests, "p50_us": found.p50_us}
    print(json.dumps({**fields, "p99_us": found.p99_us, "max_us": found.max_us}))


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    except (BenchError, OSError, TimeoutError) as error:
        sys.exit(str(error) or "the last answers did not come")
