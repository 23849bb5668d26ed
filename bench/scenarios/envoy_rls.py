"""Envoy's rate limit service beside the least that a gRPC server in Python can do.

Calls of `ShouldRateLimit` a second, 64 in flight, each about one descriptor that passes; the other
server answers every call with the same bytes. Both have one CPU, and the load has the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.results import Result
from bench.scenarios import calls
from bench.scenarios.base import Plan
from bench.stage import Stage
from gateway.systems.envoy.messages import (
    METHOD,
    OK,
    SERVICE,
    Descriptor,
    DescriptorStatus,
    EnvoyQuestion,
    EnvoyStatus,
    Reply,
    write_question,
    write_reply,
)

GOAL: Final = 0.7

_PATH: Final = f"/{SERVICE}/{METHOD}"
_ADDRESS: Final = Descriptor((("remote_address", "203.0.113.7"),))
_ONE: Final = write_question(EnvoyQuestion("shop", [_ADDRESS]))
_THREE: Final = write_question(
    EnvoyQuestion(
        "shop",
        [
            _ADDRESS,
            Descriptor((("path", "/v1/pay"), ("user", "ann"))),
            Descriptor((("database", "users"),)),
        ],
    )
)
_CONSTANT: Final = write_reply(
    Reply(OK, [EnvoyStatus(OK, DescriptorStatus(10_000_000, 1), 9_999_999, 1)])
)
_PASSES: Final = bytes((8, OK))
"""What every answer begins with that lets a request pass."""

_CONFIG: Final = """
listeners:
  - envoy_rls:
      domains:
        shop:
          - { match: { remote_address: "*" }, limit: 10000000/s }
          - { match: { path: /v1/*, user: "*" }, limit: 10000000/s }
          - { match: { database: users }, limit: 10000000/s }
    bind: 127.0.0.1:{port}
store: {store}
admin: off
"""


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Measure in rounds, each server after the other."""
    redis = f"redis://127.0.0.1:{stage.redis_port}/0"
    match = calls.Match(
        "Envoy's rate limit service (calls a second)",
        _PATH,
        _PASSES,
        {
            "constant": calls.constant(_PATH, _CONSTANT),
            "memory": calls.sluice(stage, _CONFIG.replace("{store}", "memory://")),
            "redis": calls.sluice(stage, _CONFIG.replace("{store}", redis)),
        },
        {
            calls.CONSTANT: calls.Question("constant", _ONE),
            calls.OURS: calls.Question("memory", _ONE),
            "Sluice, three descriptors": calls.Question("memory", _THREE),
            "Sluice + Redis": calls.Question("redis", _ONE),
        },
        GOAL,
    )
    yield calls.compare(match, plan, stage)
