"""ratio's service beside the least that a gRPC server in Python can do.

Calls of `RateLimit` a second, 64 in flight, about one owner and resource. With ratio's own limit,
100 a minute, nearly all of them are refused, which is what a limiter is for; the token bucket lets
all of them through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.results import Result
from bench.scenarios import calls
from bench.scenarios.base import Plan
from bench.stage import Stage
from gateway.systems.ratio.messages import (
    METHOD,
    OVER_LIMIT,
    SERVICE,
    RatioQuestion,
    write_code,
    write_question,
)

GOAL: Final = 0.7

_PATH: Final = f"/{SERVICE}/{METHOD}"
_PAY: Final = write_question(RatioQuestion("my-awesome-service", "/v1/order/pay"))
_FREE: Final = write_question(RatioQuestion("free", "/v1/order/pay"))
_IS_ANSWER: Final = b"\x08"
"""What every answer begins with, whichever it is: the first field."""

_CONFIG: Final = """
listeners:
  - ratio:
      rules:
        - { owner: free, limit: 10000000/s, algorithm: token_bucket }
      limit: 100/m
    bind: 127.0.0.1:{port}
store: {store}
admin: off
"""


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Measure in rounds, each server after the other."""
    redis = f"redis://127.0.0.1:{stage.redis_port}/0"
    match = calls.Match(
        "ratio's service (calls a second)",
        _PATH,
        _IS_ANSWER,
        {
            "constant": calls.constant(_PATH, write_code(OVER_LIMIT)),
            "memory": calls.sluice(stage, _CONFIG.replace("{store}", "memory://")),
            "redis": calls.sluice(stage, _CONFIG.replace("{store}", redis)),
        },
        {
            calls.CONSTANT: calls.Question("constant", _PAY),
            calls.OURS: calls.Question("memory", _PAY),
            "Sluice, token bucket": calls.Question("memory", _FREE),
            "Sluice + Redis": calls.Question("redis", _PAY),
        },
        GOAL,
    )
    yield calls.compare(match, plan, stage)
