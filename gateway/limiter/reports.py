"""Asks that report to a store what was admitted without it, and that probe what it has counted.

A `report` may overdraw: like requests that wait for their turn, it is counted in the future, up to
one period, so that the excess is missing later. Gateways with `consistency: eventual` allow for
that. Strict gateways do not: counts in future windows would not affect the present one. Their
limits are reported by `filled`, which counts no more than the limit holds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from gateway.limits.rate import Limit
from gateway.stores.base import Ask, only

MAX_PIECES: Final = 64
"""A report of more than the burst is split into pieces, at most this many per report."""


def report(limit: Limit, key: str, cost: int) -> tuple[Ask, ...]:
    """Return the asks that make a store count `cost` for a key."""
    counted = _overdrawing(limit)
    whole, rest = divmod(cost, limit.burst)
    sizes = [limit.burst] * min(whole, MAX_PIECES) + [rest] * (rest > 0)
    return tuple(Ask(only(counted), (key,), size, counted.max_wait_us) for size in sizes)


def filled(limit: Limit, key: str, cost: int) -> tuple[Ask, ...]:
    """Return the asks that make a store count `cost`, as far as limit and queue have room."""
    if limit.max_wait_us:
        return _waiting(limit, key, cost)
    if limit.algorithm in {"fixed_window", "sliding_window_counter"}:
        return (Ask(only(_counting_refused(limit)), (key,), cost, 0),)
    counted = _emptying(limit)
    return (Ask(only(counted), (key,), cost, counted.max_wait_us),)


def _waiting(limit: Limit, key: str, cost: int) -> tuple[Ask, ...]:
    # Requests in the queue may have been counted in future windows: this queues like them.
    size = min(-(-cost // MAX_PIECES), limit.burst)
    pieces = [size] * (cost // size) + [cost % size] * (cost % size > 0)
    asks = [Ask(only(limit), (key,), piece, limit.max_wait_us) for piece in pieces[:MAX_PIECES]]
    return tuple(asks)


@lru_cache(maxsize=4096)
def _emptying(limit: Limit) -> Limit:
    """Return the limit allowed to overdraw by its size, so that a report always fits."""
    burst_us = limit.burst * limit.period_us // limit.count
    return replace(limit, max_wait_us=burst_us + limit.period_us, count_refused=False)


@lru_cache(maxsize=4096)
def _counting_refused(limit: Limit) -> Limit:
    return replace(limit, count_refused=True)


def probe_ask(limit: Limit, key: str, cost: int) -> Ask:
    """Return the ask that probes whether a request may pass; it takes the cost if it may."""
    # Overdrawing like a report, or the store would drop the overdraft of other reports.
    return Ask(only(_overdrawing(limit)), (key,), cost, 0)


@lru_cache(maxsize=4096)
def _overdrawing(limit: Limit) -> Limit:
    # A waiting request is not refused, so this also suits limits that count refused requests.
    wait_us = max(limit.period_us, limit.max_wait_us)
    return replace(limit, max_wait_us=wait_us, count_refused=False)
