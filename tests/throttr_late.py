"""A Throttr server that tells what a counter is when it writes, not when it was asked.

So do the servers 4.0: what came in one read is answered by one write, and only then is the quota
that a `QUERY` tells fetched out of its counter. Of one that was purged in the same read they tell
what its memory holds by then.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from typing import Final, Self, cast

from gateway.base.clock import monotonic_us
from gateway.systems.throttr.codec_v5 import Ttl

HEADS: Final = {1: 7, 2: 2, 3: 6, 4: 2}
"""Bytes before the key, by the type of a request; the last of them says how long the key is."""
JUNK: Final = b"\x5a\xa5"


class _Counter:
    """A number as it lies in memory, and when it ends."""

    def __init__(self, quota: bytes, unit: int) -> None:
        self.quota = bytearray(quota)
        self.unit = unit
        self.ends_us = 0

    def last(self, value: int) -> None:
        """End after so many of its units from now."""
        self.ends_us = monotonic_us() + Ttl(self.unit, value).us

    def ttl(self) -> bytes:
        """What is left of its time, rounded down."""
        left_us = self.ends_us - monotonic_us()
        return struct.pack("<BH", self.unit, left_us // Ttl(self.unit, 1).us)


class _Connection(socketserver.BaseRequestHandler):
    """One client."""

    def handle(self) -> None:
        server = cast("LateThrottr", self.server)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while more := self.request.recv(4096):
            data += more
            with server.lock:
                answers: list[bytes | bytearray] = []
                while data and len(data) >= (head := HEADS[data[0]]) + data[head - 1]:
                    end = head + data[head - 1]
                    answers += server.answer(data[:head], data[head:end])
                    data = data[end:]
                answer = b"".join(answers)
            self.request.sendall(answer)


class LateThrottr(socketserver.ThreadingTCPServer):
    """Such a server of 16 bits, with a thread for each client."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.lock = threading.Lock()
        self._counters: dict[bytes, _Counter] = {}

    @property
    def url(self) -> str:
        """What a store connects to."""
        return f"throttr+v5://127.0.0.1:{self.server_address[1]}?size=16"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, head: bytes, key: bytes) -> list[bytes | bytearray]:
        """The parts of an answer, a counter's own memory among them."""
        counter = self._counters.get(key)
        if counter is not None and counter.ends_us <= monotonic_us():
            del self._counters[key]
            counter = None
        if head[0] == 1:
            if counter is None:
                counter = self._counters[key] = _Counter(head[1:3], head[3])
                counter.last(int.from_bytes(head[4:6], "little"))
                return [b"\1"]
            return [b"\0"]
        if counter is None:
            return [b"\0"]
        if head[0] == 2:
            return [b"\1", counter.quota, counter.ttl()]
        if head[0] == 4:
            self._counters.pop(key).quota[:] = JUNK
            return [b"\1"]
        return [b"\1" if _update(counter, head[1], head[2], head[3:5]) else b"\0"]


def _update(counter: _Counter, attribute: int, change: int, data: bytes) -> bool:
    value, quota = int.from_bytes(data, "little"), int.from_bytes(counter.quota, "little")
    if attribute == 1:
        counter.last(value)
        return True
    changed = (value, quota + value, quota - value)[change]
    if changed >= 0:
        counter.quota[:] = changed.to_bytes(2, "little")
    return changed >= 0
