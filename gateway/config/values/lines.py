"""Which limits an algorithm supports: whether a limit line is compatible with its policy."""

from __future__ import annotations

import re
from typing import Final

from gateway.config.values.types import LimitLine, problem

_BURST: Final = re.compile(r"\s(burst)\s")

WITH_BURST: Final = ("token_bucket", "paced_history")
"""Algorithms whose burst may differ from their count."""
COUNTS_REFUSED: Final = ("sliding_window_log", "sliding_window_counter", "fixed_window")
"""Algorithms that can count refused requests."""

MAX_LOG_COUNT: Final = 1_000_000
"""The sliding window log and the paced history keep one time per counted request."""
MAX_AT_ONCE: Final = 100_000
"""Concurrency keeps a lease per request in flight."""
MAX_PACED_PER_SECOND: Final = 1_000_000
"""The paced history counts in whole microseconds."""


def check_line(line: LimitLine, index: int, algorithm: str, *, count_refused: bool) -> None:
    """Refuse a line that its policy's algorithm does not support.

    Args:
        line: the parsed line; it may imply its algorithm.
        index: its position in the list of limits.
        algorithm: the policy's.
        count_refused: whether the policy counts refused requests.

    Raises:
        PydanticCustomError: with a hint.
    """
    limit = line.limit
    if limit.algorithm == "concurrency":
        if limit.count > MAX_AT_ONCE:
            message = f"there would be a lease for each of {limit.count} requests in flight"
            raise problem(message, f"use at most {MAX_AT_ONCE} at once", under=(index,))
        return
    if limit.calendar:
        return
    if algorithm == "concurrency":
        message = "concurrency counts requests in flight, and this is a rate"
        hint = f"write {limit.count} at once, or use another algorithm"
        raise problem(message, hint, under=(index,))
    if count_refused and algorithm not in COUNTS_REFUSED:
        message = f"{algorithm} cannot count refused requests"
        raise problem(message, f"use one of {', '.join(COUNTS_REFUSED)}", under=(index,))
    _check_burst(line, index, algorithm)
    _check_size(line, index, algorithm)


def _check_burst(line: LimitLine, index: int, algorithm: str) -> None:
    limit = line.limit
    burst = _BURST.search(line.text)
    if algorithm not in WITH_BURST and (burst or limit.burst != limit.count):
        raise problem(
            f"{algorithm} has no burst: its limit is its burst",
            f"remove 'burst {limit.burst}', or use algorithm: token_bucket",
            column=burst.start(1) + 1 if burst else 0,
            under=(index,),
        )


def _check_size(line: LimitLine, index: int, algorithm: str) -> None:
    limit = line.limit
    kept = {"sliding_window_log": limit.count, "paced_history": limit.burst}.get(algorithm, 0)
    if kept > MAX_LOG_COUNT:
        raise problem(
            f"{algorithm} would keep {kept} times per key",
            f"use at most {MAX_LOG_COUNT}; token_bucket keeps one number",
            under=(index,),
        )
    too_fast = limit.count * 1_000_000 > MAX_PACED_PER_SECOND * limit.period_us
    if algorithm == "paced_history" and too_fast:
        message = "paced_history counts in whole microseconds"
        raise problem(message, f"use at most {MAX_PACED_PER_SECOND} per second", under=(index,))
