"""One module per figure; `SCENARIOS` is what `python -m bench NAME` chooses from, in order."""

from __future__ import annotations

from bench.scenarios import (
    consistency,
    cost,
    envoy_rls,
    http2,
    latency,
    limiter,
    local,
    mariadb,
    policies,
    ratio,
    refusing,
    shared,
    slow,
    smockron,
    startup,
    throttr,
    transfer,
)
from bench.scenarios.base import Run

SCENARIOS: dict[str, Run] = {
    "local": local.run,
    "redis": shared.run,
    "consistency": consistency.run,
    "refusing": refusing.run,
    "policies": policies.run,
    "latency": latency.run,
    "transfer": transfer.run,
    "http2": http2.run,
    "slow": slow.run,
    "startup": startup.run,
    "throttr": throttr.run,
    "smockron": smockron.run,
    "limiter-memory": limiter.memory,
    "limiter-redis": limiter.on_redis,
    "limiter-mariadb": mariadb.run,
    "limiter-cost": cost.run,
    "envoy_rls": envoy_rls.run,
    "ratio": ratio.run,
}
