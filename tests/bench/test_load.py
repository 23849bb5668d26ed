"""wrk's report is understood as wrk writes it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter

import pytest

from bench.errors import BenchError
from bench.load import CONNECTIONS, flood, parse

PLAIN_REPORT = """Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.32ms    2.10ms  41.22ms   95.31%
    Req/Sec    60.12k     3.07k   63.00k    90.00%
  119640 requests in 2.00s, 31.72MB read
Requests/sec:  59770.49
Transfer/sec:     15.85MB
"""


def test_total_and_time() -> None:
    """Requests per second follow from the total and the time that wrk really took."""
    found = parse(PLAIN_REPORT)
    assert (found.requests, found.not_ok, found.errors) == (119640, 0, 0)
    assert found.ok_per_second == pytest.approx(59820)


def test_refusals_and_socket_errors() -> None:
    """Answers outside 2xx and 3xx count as refused, and broken connections separately."""
    found = parse(
        "  1000 requests in 500.00ms, 1MB read\n"
        "  Socket errors: connect 1, read 20, write 300, timeout 4000\n"
        "  Non-2xx or 3xx responses: 900\n"
    )
    assert (found.not_ok, found.errors) == (900, 4321)
    assert found.ok_per_second == pytest.approx(200)
    assert found.refused_per_second == pytest.approx(1800)


def test_minutes() -> None:
    """A long run is shown in minutes."""
    assert parse("  600 requests in 1.50m, 1MB read").seconds == pytest.approx(90)


@pytest.mark.parametrize("text", ["", "unable to connect", "  0 requests in 2.00s, 0.00B read"])
def test_nothing_measured(text: str) -> None:
    """A run without an answer is an error, never a figure of zero."""
    with pytest.raises(BenchError):
        parse(text)


@pytest.mark.parametrize("clients", [1, 3])
async def test_clients_take_turns(clients: int) -> None:
    """Several clients identify themselves by a header, and each asks as often as the others."""
    asked: Counter[str] = Counter()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert "Accept-Language: en-GB" in head
                told = re.search("X-Client: (.*)\r", head)
                asked[told[1] if told else ""] += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.to_thread(flood, url, 1, clients)
    names = {""} if clients == 1 else {f"client-{n:04}" for n in range(1, clients + 1)}
    assert set(asked) == names
    # What wrk has sent last may not have been read.
    assert max(asked.values()) - min(asked.values()) <= CONNECTIONS
    assert min(asked.values()) > CONNECTIONS
