"""Throttr's protocol beside Redis's own: requests a second, pipelined and one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from statistics import median
from struct import pack

from bench.errors import BenchError
from bench.pipelined import Batch, ask, flood
from bench.programs import program, python
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.servers import Server, accepts_tcp, cpu_shares, free_port
from bench.stage import Stage

KEYS = 1000
DEPTH = 128
CONNECTIONS = 8
_GOAL = 0.1
_REDIS = "Redis, INCR"
_V5 = "Throttr v5 of 16 bits, UPDATE quota"
_V2 = "Throttr v2, INSERT that consumes"
_SHARED = "Throttr v5, records in Redis"
_CONFIG = """\
store: {{ url: "{store}", deadline: 1s }}
admin: "off"
log: {{ access: "off" }}
listeners:
  - {{ throttr: v5, bind: "127.0.0.1:{v5}" }}
  - {{ throttr: v2, bind: "127.0.0.1:{v2}" }}
"""


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Flood each server in turn, each on the proxy's CPU."""
    result = Result(
        "Throttr's protocol, requests a second",
        ["server", f"{CONNECTIONS} connections, {DEPTH} at a time", "one at a time", "of Redis"],
    )
    with ExitStack() as stack:
        redis = stack.enter_context(_redis(stage))
        memory, shared = _Ports(), _Ports()
        servers = {_REDIS: redis}
        servers[_V5] = servers[_V2] = stack.enter_context(_sluice(stage, memory, "memory://"))
        store = f"redis://127.0.0.1:{stage.redis_port}"
        servers[_SHARED] = stack.enter_context(_sluice(stage, shared, store))
        for port in (memory.v5, shared.v5):
            _fill(port)
        makers: dict[str, tuple[int, Callable[[int], Batch]]] = {
            _REDIS: (redis.port, _incr),
            _V5: (memory.v5, _update),
            _V2: (memory.v2, _insert),
            _SHARED: (shared.v5, _update),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
        measurements = {
            name: partial(_measure, name, servers[name], port, make, plan, found)
            for name, (port, make) in makers.items()
        }
        working = in_rounds(plan.rounds, measurements, result.broken)
        _tell(result, {name: found[name] for name in makers if name in working})
    yield result


class _Ports:
    """Where the listeners of a gateway are."""

    def __init__(self) -> None:
        self.v5, self.v2 = free_port(), free_port()


def _measure(
    name: str,
    server: Server,
    port: int,
    make: Callable[[int], Batch],
    plan: Plan,
    found: Mapping[str, list[tuple[float, float]]],
    number: int,
) -> None:
    rates: list[float] = []
    shares = cpu_shares(
        server, lambda: rates.append(flood(port, make(DEPTH), plan.seconds, CONNECTIONS))
    )
    rates.append(flood(port, make(1), plan.seconds, 1))
    server.expect_alive()
    found[name].append((rates[0], rates[1]))
    plan.say(
        f"  round {number}, {name}: {rates[0]:,.0f} pipelined ({shares.own:.0%} of its CPU,"
        f" {shares.others:.0%} of others), {rates[1]:,.0f} one at a time"
    )


def _tell(result: Result, found: Mapping[str, list[tuple[float, float]]]) -> None:
    pipelined = {name: median([each[0] for each in rates]) for name, rates in found.items()}
    for name, rates in found.items():
        part = ratio(pipelined[name], pipelined.get(_REDIS))
        single = median([each[1] for each in rates])
        shown = f"{part:.2f}" if part is not None else ""
        result.rows.append([name, f"{pipelined[name]:,.0f}", f"{single:,.0f}", shown])
    part = ratio(pipelined.get(_V5), pipelined.get(_REDIS))
    result.goals.append(Goal("Throttr v5 / Redis INCR, pipelined", part, _GOAL))
    result.remarks.append(
        f"Each server alone on one CPU, the load on the other, over {KEYS:,} keys. Where the"
        " records are in Redis, that Redis shares the CPU of the load."
    )


def _sluice(stage: Stage, ports: _Ports, store: str) -> Server:
    home = stage.new_directory("throttr")
    path = home / "sluice.yaml"
    path.write_text(_CONFIG.format(store=store, v5=ports.v5, v2=ports.v2))
    argv = [python(), "-m", "gateway", "run", str(path)]
    cpu = stage.cpus.proxy
    return Server("Sluice", argv, ports.v5, cpu, home, is_ready=accepts_tcp)


def _redis(stage: Stage) -> Server:
    home = stage.new_directory("redis-incr")
    port = free_port()
    argv = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    argv += ["--save", "", "--appendonly", "no", "--dir", str(home)]
    return Server("Redis", argv, port, stage.cpus.proxy, home, is_ready=accepts_tcp)


def _fill(port: int) -> None:
    """A record of some hours for each key."""
    inserts = [pack("<BHBHB", 1, 0xFFFF, 6, 9, len(key)) + key for key in map(_key, range(KEYS))]
    if len(ask(port, b"".join(inserts), KEYS)) != KEYS:
        raise BenchError("the records could not be made")


def _key(number: int) -> bytes:
    return b"user:%04d" % (number % KEYS)


def _incr(depth: int) -> Batch:
    commands = [b"*2\r\n$4\r\nINCR\r\n$9\r\n%b\r\n" % _key(number) for number in range(depth)]
    return Batch(b"".join(commands), depth, lambda heard: heard.count(b"\n"))


def _update(depth: int) -> Batch:
    # Up and down, so that it never ends at a bound, where less would be done.
    updates = [
        pack("<BBBHB", 3, 0, 2 if depth > 1 and number % 2 else 1, 1, 9) + _key(number // 2)
        for number in range(depth)
    ]
    return Batch(b"".join(updates), depth, len)


def _insert(depth: int) -> Batch:
    inserts = [
        pack("<BQQBQBB", 1, 1 << 62, 1, 2, 1 << 20, 9, 4) + _key(number) + b"/api"
        for number in range(depth)
    ]
    return Batch(b"".join(inserts), depth, len, units=18)
