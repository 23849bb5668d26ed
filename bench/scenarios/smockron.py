"""Smockron's master beside a bare pair of ZeroMQ sockets: messages a second, and its word's way."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import zmq

from bench.errors import BenchError
from bench.programs import python
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.servers import Server, accepts_tcp, cpu_shares
from bench.stage import Stage

_BARE: Final = "bare PUB and SUB, in Python"
_MEMORY: Final = "Sluice, in memory"
_SHARED: Final = "Sluice, in Redis"
_OVER: Final = "Sluice, in memory, all over the limit"
_IDENTIFIERS: Final = 1000
_BATCH: Final = 5_000
_PACE_S: Final = 0.001
"""Between two messages whose answers are timed: each finds the master asleep, as most do."""
_PATIENCE_MS: Final = 5_000
_ALLOWED: Final = 10.0
_MORE: Final = int(zmq.SNDMORE)
"""As a plain number: `send_multipart` would need more time than the masters."""
_CONFIG: Final = """\
store: {{ url: "{store}", deadline: 1s }}
admin: "off"
log: {{ access: "off" }}
listeners:
  - bind: "127.0.0.1:{port}"
    smockron:
      domains:
        within: 1000000/s burst 10
        over: 1/h burst 10
        one: 1/h burst 1
"""


class _Found(NamedTuple):
    """What a round has found: messages a second, and the times of answers in microseconds."""

    rate: float
    times_us: list[float]


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Send reports to each in turn, as fast as it takes them, then one at a time."""
    result = Result(
        "Smockron's master: reports a second, and DELAY_UNTIL after the report that exceeds",
        ["master", "reports/s", "p50", "p99", "p99 of bare"],
    )
    found: dict[str, list[_Found]] = {}
    with ExitStack() as stack:
        ports = {_BARE: _free_pair(), _MEMORY: _free_pair(), _SHARED: _free_pair()}
        redis = f"redis://127.0.0.1:{stage.redis_port}"
        servers = {
            _BARE: stack.enter_context(_bare(stage, ports[_BARE])),
            _MEMORY: stack.enter_context(_sluice(stage, ports[_MEMORY], "memory://")),
            _SHARED: stack.enter_context(_sluice(stage, ports[_SHARED], redis)),
        }
        ports[_OVER], servers[_OVER] = ports[_MEMORY], servers[_MEMORY]
        measurements = {
            name: partial(_measure, name, servers[name], ports[name], plan, found)
            for name in (_BARE, _MEMORY, _OVER, _SHARED)
        }
        working = in_rounds(plan.rounds, measurements, result.broken)
    _tell(result, {name: found[name] for name in measurements if name in working})
    yield result


class _Peer:
    """A gatekeeper's two sockets, which lose nothing here."""

    def __init__(self, port: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._accounting = self._context.socket(zmq.PUB)
        self._control = self._context.socket(zmq.SUB)
        for one in (self._accounting, self._control):
            one.setsockopt(zmq.LINGER, 0)
            one.setsockopt(zmq.SNDHWM, 0)
            one.setsockopt(zmq.RCVHWM, 0)
        self._control.subscribe(b"one\0")
        self._accounting.connect(f"tcp://127.0.0.1:{port}")
        self._control.connect(f"tcp://127.0.0.1:{port + 1}")
        self._names = 0

    def report(self, domain: bytes, identifier: bytes, now: bytes) -> None:
        """One report."""
        send = self._accounting.send
        for frame in (domain, b"ACCEPTED", identifier, now, b""):
            send(frame, _MORE)
        send(b"")

    def exceed(self, within_ms: int = _PATIENCE_MS) -> bool:
        """Report what exceeds, of somebody new; whether DELAY_UNTIL comes."""
        self._names += 1
        name = b"%x-%d" % (time.monotonic_ns(), self._names)
        now = b"%d" % (time.time_ns() // 1_000_000)
        # The bare one answers what is not accepted.
        self._accounting.send_multipart([b"one\0", b"DELAYED", name, now, now, b""])
        while self._control.poll(within_ms):
            if self._control.recv_multipart()[2] == name:
                return True
        return False

    def close(self) -> None:
        """Close both."""
        self._accounting.close()
        self._control.close()
        self._context.term()


def _measure(
    name: str,
    server: Server,
    port: int,
    plan: Plan,
    found: dict[str, list[_Found]],
    number: int,
) -> None:
    peer = _Peer(port)
    try:
        tries = 0
        while not peer.exceed(100):
            tries += 1
            if tries > 100:
                raise BenchError(f"{name} does not answer")
        domain = b"over\0" if name == _OVER else b"within\0"
        rates: list[float] = []
        shares = cpu_shares(server, lambda: rates.append(_flood(peer, domain, plan.seconds)))
        times_us = _one_by_one(peer, plan.seconds)
        server.expect_alive()
    finally:
        peer.close()
    found.setdefault(name, []).append(_Found(rates[0], times_us))
    p99 = _percentile(times_us, 0.99)
    plan.say(
        f"  round {number}, {name}: {rates[0]:,.0f}/s ({shares.own:.0%} of its CPU,"
        f" {shares.others:.0%} of others), p99 {p99:.0f} us"
    )


def _flood(peer: _Peer, domain: bytes, seconds: float) -> float:
    """Reports a second, as fast as they are taken: batches, each awaited."""
    names = [b"203.0.113.%d" % number for number in range(_IDENTIFIERS)]
    begun = time.perf_counter()
    sent = 0
    while (passed := time.perf_counter() - begun) < seconds:
        now = b"%d" % (time.time_ns() // 1_000_000)
        for number in range(_BATCH):
            peer.report(domain, names[number % _IDENTIFIERS], now)
        if not peer.exceed():
            raise BenchError("a batch was not answered")
        sent += _BATCH + 1
    return sent / passed


def _one_by_one(peer: _Peer, seconds: float) -> list[float]:
    """How long each word of the master took, in microseconds."""
    times_us = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        if not peer.exceed():
            raise BenchError("a report was not answered")
        times_us.append((time.perf_counter() - begun) * 1_000_000)
        time.sleep(_PACE_S)
    return times_us


def _tell(result: Result, found: Mapping[str, list[_Found]]) -> None:
    p99 = {
        name: median([_percentile(each.times_us, 0.99) for each in rounds])
        for name, rounds in found.items()
    }
    for name, rounds in found.items():
        rate = median([each.rate for each in rounds])
        p50 = median([_percentile(each.times_us, 0.5) for each in rounds])
        part = ratio(p99[name], p99.get(_BARE))
        shown = f"{part:.1f}x" if part is not None else ""
        result.rows.append([name, f"{rate:,.0f}", f"{p50:.0f} us", f"{p99[name]:.0f} us", shown])
    for name in (_MEMORY, _SHARED):
        part = ratio(p99.get(name), p99.get(_BARE))
        result.goals.append(Goal(f"{name}: DELAY_UNTIL, p99 / bare", part, _ALLOWED, True))
    result.remarks.append(
        "Each master alone on one CPU, the reports and Redis on the other; reports come in batches"
        f" of {_BATCH:,}, of {_IDENTIFIERS:,} clients, and each batch is awaited. The times are of"
        " one report at a time, a millisecond apart. The bare pair only reads and answers."
    )


def _percentile(times_us: list[float], part: float) -> float:
    ordered = sorted(times_us)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def _bare(stage: Stage, port: int) -> Server:
    home = stage.new_directory("zeromq-bare")
    path = Path(__file__).parents[1] / "zeromq_bare.py"
    argv = [python(), str(path), str(port)]
    return Server("the bare pair", argv, port, stage.cpus.proxy, home, is_ready=accepts_tcp)


def _sluice(stage: Stage, port: int, store: str) -> Server:
    home = stage.new_directory("smockron")
    path = home / "sluice.yaml"
    path.write_text(_CONFIG.format(store=store, port=port))
    argv = [python(), "-m", "gateway", "run", str(path)]
    return Server("Sluice", argv, port, stage.cpus.proxy, home, is_ready=accepts_tcp)


def _free_pair() -> int:
    """The lower of two ports next to each other that nobody has."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise BenchError("no two ports next to each other are free")
