"""What a Throttr server can keep: fixed windows whose numbers fit into its own."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.policies import PolicyConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.types import LimitLine
from gateway.stores.urls import StoreUrl
from gateway.systems.throttr.codec_v5 import SIZES, USUAL_SIZE, largest, ttl_of


def misfits_of_throttr(url: StoreUrl, policy: PolicyConfig) -> Iterator[Finding]:
    """What of a policy a Throttr server cannot keep; paths begin below the policy."""
    size = int(url.options.get("size", USUAL_SIZE))
    if policy.consistency != "strict":
        message = f"a Throttr server tells no gateway of the others: {policy.consistency} limits"
        hint = "consistency: strict, or a store of another kind"
        yield Finding(("consistency",), f"{message} cannot be kept in it", hint)
    if policy.queue is not None:
        message = "a Throttr server gives no turns: nobody can wait for one"
        yield Finding(("queue", KEY), message, "queue: off, or a store of another kind")
    if policy.count_refused:
        message = "a Throttr server does not count what it refuses"
        yield Finding(("count_refused", KEY), message, "leave it out")
    for index, line in enumerate(policy.limits):
        found = _misfit(line, size)
        if found is not None:
            message, hint = found
            yield Finding(("limits", index), message, hint)


def _misfit(line: LimitLine, size: int) -> tuple[str, str] | None:
    """Why a limit cannot be kept, and what would do."""
    limit = line.limit
    if limit.calendar:
        message = f"a Throttr server has no calendar: {line.text}"
        return message, f"such as {limit.count}/day, from each client's first request on"
    if limit.algorithm != "fixed_window":
        message = f"a Throttr server keeps fixed windows only, and this is {limit.algorithm}"
        instead = "a store of another kind"
        if limit.algorithm != "concurrency":
            instead = f"algorithm: fixed_window, or {instead}"
        return f"{message}: {line.text}", instead
    if limit.count > largest(size):
        message = f"{limit.count} does not fit into the {size} bits of the store's numbers"
        return message, _larger(size, f"at most {largest(size)}")
    if ttl_of(limit.period_us, size) is None:
        message = f"no unit of time makes a whole number of {size} bits of it: {line.text}"
        return message, _larger(size, "a rounder period")
    return None


def _larger(size: int, otherwise: str) -> str:
    if size == SIZES[-1]:
        return otherwise
    larger = ", ".join(str(each) for each in SIZES if each > size)
    return f"{otherwise}; or a server built for larger ones: ?size={larger}"
