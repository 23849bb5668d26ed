"""Closed-loop load for gRPC: so many unary calls under way, each followed by the next.

`python -m bench.grpc_load PORT METHOD REQUEST ANSWER SECONDS CONNECTIONS IN_FLIGHT` prints calls
a second; REQUEST is a message in hexadecimal digits, and ANSWER what the answer begins with. A
client of grpcio needs more CPU than the server that it asks, so frames are written as they are
(RFC 9113): headers are said once and named by their index in the peer's table after that, as
gRPC's clients do.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from typing import Final, cast

import uvloop

from bench.errors import BenchError
from bench.programs import REPOSITORY, python

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_LARGE_WINDOW: Final = 1 << 30
_HEAD: Final = 9
_MESSAGE: Final = 5
"""Where a message begins: behind a byte that says whether it is compressed, and its length."""
WARM_UP_S: Final = 0.5


def measure(
    port: int,
    method: str,
    request: bytes,
    answer: bytes,
    seconds: float,
    *,
    connections: int = 4,
    in_flight: int = 16,
) -> float:
    """Calls a second, measured by a process of its own on this process's CPU.

    Args:
        port: of a server without TLS on this machine.
        method: such as `/RateLimitService/RateLimit`.
        request: the message that is sent each time.
        answer: what the message that comes back begins with, each time.
        seconds: how long.
        connections: how many.
        in_flight: calls under way on each.

    Raises:
        BenchError: a call failed, or was answered otherwise.
    """
    argv = [python(), "-m", "bench.grpc_load", str(port), method, request.hex(), answer.hex()]
    argv += [str(seconds), str(connections), str(in_flight)]
    said = subprocess.run(
        argv, capture_output=True, text=True, cwd=REPOSITORY, timeout=seconds + 30, check=False
    )
    if said.returncode:
        raise BenchError(f"{method} on {port}: {(said.stderr.strip().splitlines() or ['?'])[-1]}")
    return float(said.stdout)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    assert len(data) < 127, "longer texts have a length of several bytes (RFC 7541, 5.1)"
    return bytes((len(data),)) + data


class _Connection(asyncio.Protocol):
    """One connection with its calls."""

    def __init__(self, method: str, authority: str, request: bytes, answer: bytes) -> None:
        # Names with an index are in the static table of RFC 7541, appendix A.
        said = [
            *(b"\x44" + _text(method), b"\x41" + _text(authority)),
            b"\x5f" + _text("application/grpc"),
            *(b"\x40" + _text("te") + _text("trailers"), b"\x7a" + _text("sluice-bench")),
        ]
        post_http = b"\x83\x86"
        self._first = post_http + b"".join(said)
        self._next = post_http + bytes(0x80 | (61 + len(said) - at) for at in range(len(said)))
        self._body = b"\0" + len(request).to_bytes(4) + request
        self._answer = answer
        self._stream = 1
        self._buffer = b""
        self.transport: asyncio.Transport
        self.done = 0
        self.problem = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        # ENABLE_PUSH 0, INITIAL_WINDOW_SIZE as large as it may be.
        settings = b"\0\x02\0\0\0\0" + b"\0\x04" + _LARGE_WINDOW.to_bytes(4)
        window = _frame(_WINDOW_UPDATE, 0, 0, _LARGE_WINDOW.to_bytes(4))
        self.transport.write(_PREFACE + _frame(_SETTINGS, 0, 0, settings) + window)

    def begin(self, calls: int) -> None:
        """Make so many calls, and one more whenever one is answered."""
        self.transport.write(b"".join(self._call() for _ in range(calls)))

    def _call(self) -> bytes:
        stream, self._stream = self._stream, self._stream + 2
        block = self._first if stream == 1 else self._next
        return _frame(_HEADERS, _END_HEADERS, stream, block) + _frame(
            _DATA, _END_STREAM, stream, self._body
        )

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        at, out = 0, []
        while len(data) - at >= _HEAD:
            end = at + _HEAD + int.from_bytes(data[at : at + 3])
            if len(data) < end:
                break
            kind, flags, payload = data[at + 3], data[at + 4], data[at + _HEAD : end]
            at = end
            if kind == _DATA:
                if payload[:1] != b"\0" or not payload.startswith(self._answer, _MESSAGE):
                    self._fail(f"the answer is {payload.hex()}")
            elif kind == _HEADERS:
                if flags & _END_STREAM:
                    self.done += 1
                    out.append(self._call())
            elif kind in {_SETTINGS, _PING} and not flags & _ACK:
                out.append(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
            elif kind in {_GOAWAY, _RST_STREAM}:
                self._fail(f"the server ended it: {payload!r}")
        self._buffer = data[at:]
        if out:
            self.transport.write(b"".join(out))

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.problem = self.problem or "the connection was lost"


async def _run(
    port: int, method: str, request: bytes, answer: bytes, seconds: float, shape: tuple[int, int]
) -> float:
    loop = asyncio.get_running_loop()
    connections, in_flight = shape
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(
            lambda: _Connection(method, f"127.0.0.1:{port}", request, answer), "127.0.0.1", port
        )
        clients.append(client)
    for client in clients:
        client.begin(in_flight)
    await asyncio.sleep(WARM_UP_S)
    done, begun = sum(client.done for client in clients), time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (sum(client.done for client in clients) - done) / (time.perf_counter() - begun)
    for client in clients:
        if client.problem:
            raise BenchError(client.problem)
    if not rate:
        raise BenchError("no call was answered")
    return rate


def main(argv: list[str]) -> None:
    """Measure and print."""
    port, method, request, answer, seconds, connections, in_flight = argv
    gc.freeze()
    gc.disable()
    shape = int(connections), int(in_flight)
    work = _run(
        int(port), method, bytes.fromhex(request), bytes.fromhex(answer), float(seconds), shape
    )
    print(uvloop.run(work))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (BenchError, OSError) as error:
        sys.exit(str(error))
