"""What it costs that workers share the memory store, and what it brings.

Run as `python -m bench.micro.workers`. First a decision: in the process itself, asked of a limiter
over a pair of Unix sockets, and of a Redis over one. Then a request through the whole gateway,
with one worker and two. CPU time is that of all processes together; rounds take turns, and the
best of each is shown, since a machine is never quiet. Load, upstream and gateway share all CPUs,
so with two of them a second worker has little to win in requests a second: look at the CPU time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench import proc
from bench.load import flood
from bench.machine import Cpus, choose_cpus
from bench.programs import PYTHON_PATH, program, python
from bench.servers import Server, accepts_tcp, free_port
from bench.stage import Stage, set_stage
from bench.template import render
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore
from gateway.stores.redis.store import RedisStore
from gateway.stores.shared.server import SharedServer
from gateway.stores.shared.store import SharedStore
from gateway.workers.loop import run_in_loop

DECISIONS: Final = 40_000
BATCHES: Final = (1, 20)
AT_ONCE: Final = 3
"""Batches that are under way at a time, as a busy worker has them."""
LATENCIES: Final = 5_000
ROUNDS: Final = 5
FLOOD_S: Final = 4
LIMITS: Final = (Limit(1_000_000, 1_000_000, 1_000_000, scope="bench"),)
KEYS: Final = tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(1000))

Decide = Callable[[Sequence[Ask]], Awaitable[Sequence[Verdict]]]


class Cost(NamedTuple):
    """Of one decision, in microseconds.

    Attributes:
        own: CPU time of the worker.
        others: CPU time of the process that it asks.
        wall: time.
    """

    own: float
    others: float
    wall: float


def _asks(batch: int) -> list[list[Ask]]:
    return [
        [Ask(LIMITS, (KEYS[(start + place) % len(KEYS)],), 1, 0) for place in range(batch)]
        for start in range(0, len(KEYS), 7)
    ]


async def _measure(decide: Decide, batch: int, server: int | None) -> Cost:
    """The cost of a decision; `server` is the session of the process that is asked."""
    batches = _asks(batch)
    turns = DECISIONS // batch // AT_ONCE

    async def ask() -> None:
        for turn in range(turns):
            await decide(batches[turn % len(batches)])

    others = proc.cpu_seconds(server) if server is not None else 0.0
    own, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*[ask() for _ in range(AT_ONCE)])
    own, wall = time.process_time() - own, time.perf_counter() - wall
    others = (proc.cpu_seconds(server) - others) if server is not None else 0.0
    made = turns * batch * AT_ONCE / 1e6
    return Cost(own / made, others / made, wall / made)


async def _latency(decide: Decide) -> tuple[float, float]:
    """Median and 99th percentile of one ask at a time, in microseconds."""
    (batch, *_) = _asks(1)
    taken = []
    for _ in range(LATENCIES):
        begun = time.perf_counter()
        await decide(batch)
        taken.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


def _limiter() -> tuple[int, socket.socket]:
    """A process that is a limiter, in a session of its own; and the way to it."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    os.setsid()
    ours.close()

    async def serve() -> int:
        store = MemoryStore()
        ended = asyncio.Event()

        class UntilLost(SharedServer):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                ended.set()

        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: UntilLost(store), sock=theirs)
        await ended.wait()
        return 0

    os._exit(run_in_loop(serve))


async def _compare(limiter: tuple[int, socket.socket], redis: Server, path: Path) -> int:
    pid, connection = limiter
    memory = MemoryStore()
    shared = SharedStore(2, 0)
    await shared.attach(connection)
    remote = RedisStore(f"unix://{path}", domain="bench", deadline_us=0)
    await remote.start()
    while not remote.is_ready:  # noqa: ASYNC110 - it has no event, and needs none elsewhere
        await asyncio.sleep(0.01)
    stores: dict[str, tuple[Decide, int | None]] = {
        "memory": (memory.decide, None),
        "limiter": (shared.decide, pid),
        "redis": (remote.decide, redis.session),
    }
    print("a decision, in microseconds: worker's CPU + the other process's CPU; time")
    for batch in BATCHES:
        best: dict[str, Cost] = {}
        for _ in range(ROUNDS):
            for name, (decide, server) in stores.items():
                cost = await _measure(decide, batch, server)
                best[name] = min(best.get(name, cost), cost, key=lambda one: one.own + one.others)
        for name, (own, others, wall) in best.items():
            print(f"  batches of {batch:>2}, {name:<8}{own:>8.2f} +{others:>6.2f}{wall:>10.2f}")
    print("one ask at a time, in microseconds: median, 99th percentile")
    for name, (decide, _) in stores.items():
        rounds = [await _latency(decide) for _ in range(ROUNDS)]
        median, tail = min(rounds)
        print(f"  {name:<8}{median:>8.1f}{tail:>10.1f}")
    await remote.aclose()
    await shared.aclose()
    return 0


def _decisions() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "redis.sock"
        port = free_port()
        argv = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
        argv += ["--unixsocket", str(path), "--save", "", "--appendonly", "no", "--dir", folder]
        cpu = choose_cpus().load
        with Server("Redis", argv, port, cpu, Path(folder), is_ready=accepts_tcp) as redis:
            limiter = _limiter()
            try:
                run_in_loop(lambda: _compare(limiter, redis, path))
            finally:
                os.kill(limiter[0], signal.SIGKILL)
                os.waitpid(limiter[0], 0)


def _gateway(stage: Stage, workers: int, store: str) -> Server:
    home = stage.new_directory(f"workers-{workers}")
    port = free_port()
    config = render(
        "sluice.yaml",
        home / "sluice.yaml",
        port=str(port),
        upstream_port=str(stage.upstream_port),
        store=f"redis://127.0.0.1:{stage.redis_port}/0" if store == "redis" else "memory://",
        rate="1000000",
        burst="1000000",
        log=str(home / "access.log"),
    )
    text = config.read_text(encoding="utf-8")
    config.write_text(f"{text}\nserver: {{ workers: {workers} }}\n", encoding="utf-8")
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    argv = ["taskset", "--cpu-list", cpus, python(), "-m", "gateway", "run", str(config)]
    env = {"PYTHONPATH": PYTHON_PATH}
    return Server(f"{workers} workers, {store}", argv, port, stage.cpus.proxy, home, env)


def _requests(cpus: Cpus) -> None:
    cases = [(1, "memory"), (2, "memory"), (1, "redis"), (2, "redis")]
    print("through the gateway: requests a second, CPU time of a request in microseconds")
    with set_stage(cpus) as stage, ExitStack() as stack:
        servers = [stack.enter_context(_gateway(stage, *case)) for case in cases]
        rates: dict[str, list[float]] = {server.name: [] for server in servers}
        costs: dict[str, list[float]] = {server.name: [] for server in servers}
        for _ in range(ROUNDS):
            for server in servers:
                before = proc.cpu_seconds(server.session)
                done = flood(f"http://127.0.0.1:{server.port}/", FLOOD_S)
                spent = proc.cpu_seconds(server.session) - before
                rates[server.name].append(done.ok_per_second)
                costs[server.name].append(spent / done.requests * 1e6)
        for name, values in rates.items():
            print(f"  {name:<20}{max(values):>10,.0f}{min(costs[name]):>10.1f}")


def main() -> None:
    """Print all tables."""
    _decisions()
    _requests(choose_cpus())


if __name__ == "__main__":
    main()
