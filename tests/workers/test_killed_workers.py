"""Workers that are killed while they count: nothing that a client was told is missing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.conftest import StartGateway
from tests.e2e.signs import metric
from tests.processes import Gateway
from tests.upstreams import Upstream
from tests.workers.family import children, limiter_of, wait_until, wait_until_ready, workers_of

WORKERS: Final = 3
KILLS: Final = 12
STEADY_S: Final = 1.2
"""A worker that has run this long is restarted immediately."""

CONFIG: Final = """
server: {{ workers: 3, watchdog: off }}
store: {{ url: 'memory://', deadline: 5s }}
routes:
  /refused: {{ upstream: {url}, limit: 1/h }}
  /here: {{ respond: {{ status: 204 }} }}
  /**: {{ upstream: {url}, limit: 1000000/s }}
"""

PATHS: Final = ("/one", "/refused", "/here")

LIVES: Final = """
import json, os
from gateway.board.ledger import cpu_us, entries
from gateway.observe.metrics import GatewayMetrics, add_counts
from gateway.workers.child import start_child
from gateway.workers.places import Places

told, tell = os.pipe()

def run(place, channel):
    metrics = place.counters()
    route, policy = metrics.route("/a"), metrics.policy("p")
    while True:
        policy.passed += 1
        route.answered(200, 7)
        os.write(tell, b".")

file = os.memfd_create("counters")
places = Places(1, file)
seen = []
for number in range(300):
    place = places.take(is_limiter=False)
    child = start_child("w", [], lambda channel: run(place, channel), None)
    told_here = len(os.read(told, 1 + number % 50))
    child.kill()
    while child.exit_description() is None:
        pass
    places.free(place, child.cpu_us)
    os.set_blocking(told, False)
    while True:
        try:
            told_here += len(os.read(told, 1 << 16))
        except BlockingIOError:
            break
    os.set_blocking(told, True)
    total = GatewayMetrics()
    (copy,) = place.ledgers.copies()
    for name, counts in entries(copy):
        add_counts(total, name, counts)
    times = total.route("/a").duration
    seen.append([
        told_here, total.policy("p").passed, total.route("/a").statuses[200],
        sum(times.counts), times.sum_us // 7, cpu_us(copy),
        os.fstat(file).st_blocks, len(os.listdir("/proc/self/fd")),
    ])
print(json.dumps(seen))
"""


class Client:
    """Asks one request after the other, on connections that may break.

    Attributes:
        answered: the whole responses that it has received, by status.
        broken: how many requests had none.
    """

    def __init__(self, port: int) -> None:
        self.answered: Counter[int] = Counter()
        self.broken = 0
        self._port = port

    async def ask(self, ended: asyncio.Event) -> None:
        """Ask until that is over."""
        dice = random.Random(self._port)
        while not ended.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                while not ended.is_set():
                    path = dice.choice(PATHS)
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                    self.answered[await self._status(reader)] += 1
            except (asyncio.IncompleteReadError, ConnectionError):
                self.broken += 1
            finally:
                writer.close()

    async def _status(self, reader: asyncio.StreamReader) -> int:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, has_length, after = head.partition(b"content-length: ")
        if has_length:
            await reader.readexactly(int(after.partition(b"\r")[0]))
        return int(head.split()[1])


def _descriptors(gateway: Gateway) -> list[int]:
    """How many the supervisor and the limiter have open."""
    processes = gateway.server.pid, limiter_of(gateway)
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in processes]


async def _kill_many(gateway: Gateway) -> None:
    dice = random.Random(1)
    started = dict.fromkeys(workers_of(gateway), time.monotonic())
    for _ in range(KILLS):
        old = [pid for pid, since in started.items() if time.monotonic() - since > STEADY_S]
        while not old:
            await asyncio.sleep(0.05)
            old = [pid for pid, since in started.items() if time.monotonic() - since > STEADY_S]
        victim = dice.choice(old)
        os.kill(victim, signal.SIGKILL)
        del started[victim]
        while len(started) < WORKERS:
            await asyncio.sleep(0.01)
            for pid in children(gateway.server.pid)[1:]:
                if pid != victim and pid not in started:
                    started[pid] = time.monotonic()


async def test_every_response_that_a_client_has_is_counted(
    start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """Whoever is killed and whenever; and of those that broke, at most each once."""
    gateway = start_gateway(CONFIG.format(url=nginx_upstream.url))
    wait_until_ready(gateway, 1 + WORKERS)
    had = _descriptors(gateway)
    clients = [Client(gateway.port) for _ in range(12)]
    ended = asyncio.Event()
    asking = [asyncio.create_task(client.ask(ended)) for client in clients]
    await _kill_many(gateway)
    ended.set()
    await asyncio.gather(*asking)
    await asyncio.to_thread(wait_until_ready, gateway, 1 + WORKERS)
    # One less, if the limiter still had the connection of a readiness check at first.
    wait_until(
        lambda: all(now <= was for now, was in zip(_descriptors(gateway), had, strict=True)),
        "descriptors of dead workers stay open",
    )
    broken = sum(client.broken for client in clients)
    answered = sum((client.answered for client in clients), Counter[int]())
    assert broken > 0
    assert answered.keys() >= {200, 204, 429}
    counted = {
        status: int(metric(gateway, "sluice_requests_total", status=str(status)))
        for status in answered
    }
    assert all(counted[status] >= answered[status] for status in answered)
    assert sum(counted.values()) <= answered.total() + broken
    durations = int(metric(gateway, "sluice_request_duration_seconds_count"))
    assert sum(counted.values()) - KILLS <= durations <= sum(counted.values())
    refused = int(metric(gateway, "sluice_decisions_total", decision="refuse"))
    assert answered[429] <= refused <= answered[429] + broken


def test_hundreds_of_deaths_cost_neither_counts_nor_memory(tmp_path: Path) -> None:
    """Each has told what it has counted so far; at most one more is counted than it could tell."""
    script = [sys.executable, "-c", LIVES]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True)
    lives = json.loads(done.stdout)
    assert len(lives) == 300
    told = 0
    before = [0, 0, 0, 0]
    for count, *counted, cpu_us, blocks, descriptors in lives:
        told += count
        more = [now - was for was, now in zip(before, counted, strict=True)]
        before = counted
        assert all(count <= each <= count + 1 for each in more), more
        assert sorted(more, reverse=True) == more
        assert cpu_us > 0
        assert (blocks, descriptors) == (lives[0][-2], lives[0][-1])
    assert told > 300
