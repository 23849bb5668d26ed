"""Envoy's rate limit service beside the least that a gRPC server in Python can do.

Calls of `ShouldRateLimit` a second, 64 in flight, each about one descriptor that passes; the other
server answers every call with the same bytes. Both have one CPU, and the load has the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median
from typing import Final, NamedTuple

from bench.errors import BenchError
from bench.grpc_load import measure
from bench.programs import REPOSITORY, python
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.servers import Server, accepts_tcp, free_port
from bench.stage import Stage
from gateway.protocols.envoy_rls_messages import (
    METHOD,
    OK,
    SERVICE,
    Descriptor,
    Question,
    Reply,
    Status,
    Told,
    write_question,
    write_reply,
)

GOAL: Final = 0.7
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 16

_PATH: Final = f"/{SERVICE}/{METHOD}"
_ADDRESS: Final = Descriptor((("remote_address", "203.0.113.7"),))
_ONE: Final = write_question(Question("shop", [_ADDRESS]))
_THREE: Final = write_question(
    Question(
        "shop",
        [
            _ADDRESS,
            Descriptor((("path", "/v1/pay"), ("user", "ann"))),
            Descriptor((("database", "users"),)),
        ],
    )
)
_CONSTANT: Final = write_reply(Reply(OK, [Status(OK, Told(10_000_000, 1), 9_999_999, 1)]))
_PASSES: Final = bytes((8, OK))
"""What every answer begins with that lets a request pass."""

_CONFIG: Final = """
listeners:
  - envoy_rls:
      domains:
        shop:
          - {{ match: {{ remote_address: "*" }}, limit: 10000000/s }}
          - {{ match: {{ path: /v1/*, user: "*" }}, limit: 10000000/s }}
          - {{ match: {{ database: users }}, limit: 10000000/s }}
    bind: 127.0.0.1:{port}
store: {store}
admin: off
"""


class _Contestant(NamedTuple):
    port: int
    request: bytes


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Measure in rounds, each server after the other."""
    result = Result(
        "Envoy's rate limit service (calls a second)", ["server", "calls/s", "lowest to highest"]
    )
    figures: dict[str, list[float]] = {}
    with ExitStack() as stack:
        contestants = _contestants(stack, stage, result.broken)

        def take(name: str, number: int) -> None:
            one = contestants[name]
            rate = measure(
                one.port,
                _PATH,
                one.request,
                _PASSES,
                plan.seconds,
                connections=CONNECTIONS,
                in_flight=IN_FLIGHT,
            )
            plan.say(f"  round {number}: {name} {rate:,.0f}")
            figures.setdefault(name, []).append(rate)

        measurements = {
            name: (lambda number, name=name: take(name, number)) for name in contestants
        }
        working = in_rounds(plan.rounds, measurements, result.broken)
    medians = {name: median(figures[name]) for name in contestants if name in working}
    for name, middle in medians.items():
        ends = f"{min(figures[name]):,.0f} to {max(figures[name]):,.0f}"
        result.rows.append([name, f"{middle:,.0f}", ends])
    found = ratio(medians.get("Sluice"), medians.get("constant"))
    result.goals.append(Goal("Sluice / a constant answer", found, GOAL))
    result.remarks.append(
        f"{CONNECTIONS * IN_FLIGHT} calls in flight over {CONNECTIONS} connections. The constant "
        "answer is that of a grpc.aio server without serialisers, on uvloop. All calls ask the "
        "same, so that what is asked is read once."
    )
    yield result


def _contestants(stack: ExitStack, stage: Stage, broken: list[str]) -> Mapping[str, _Contestant]:
    ports = {"constant": free_port(), "memory": free_port(), "redis": free_port()}
    redis = f"redis://127.0.0.1:{stage.redis_port}/0"
    commands = {
        "constant": [
            *(python(), "-m", "bench.grpc_constant", str(ports["constant"])),
            *(_PATH, _CONSTANT.hex()),
        ],
        "memory": _sluice(stage, ports["memory"], "memory://"),
        "redis": _sluice(stage, ports["redis"], redis),
    }
    for name, argv in commands.items():
        server = Server(
            f"{name} gRPC",
            argv,
            ports[name],
            stage.cpus.proxy,
            stage.new_directory(name),
            {"PYTHONPATH": str(REPOSITORY)},
            accepts_tcp,
        )
        try:
            stack.enter_context(server)
        except BenchError as error:
            broken.append(str(error))
            del ports[name]
    found = {
        "constant": ("constant", _ONE),
        "Sluice": ("memory", _ONE),
        "Sluice, three descriptors": ("memory", _THREE),
        "Sluice + Redis": ("redis", _ONE),
    }
    return {
        name: _Contestant(ports[server], request)
        for name, (server, request) in found.items()
        if server in ports
    }


def _sluice(stage: Stage, port: int, store: str) -> list[str]:
    path = stage.new_directory("sluice") / "sluice.yaml"
    path.write_text(_CONFIG.format(port=port, store=store), encoding="utf-8")
    return [python(), "-m", "gateway", "run", "-c", str(path)]
