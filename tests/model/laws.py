"""What each algorithm allows, over decisions whose moments are known but for an uncertainty.

`excess` counts only what certainly happened: a request is within a window if both ends of its span
are. So a law that is found broken is broken, whatever happened in between; and where moments are
known exactly the laws are exact.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.limits.paced_history import interval_us, window_us
from gateway.limits.rate import Limit
from tests.model.history import Span


class Passed(NamedTuple):
    """What one limit let through.

    Attributes:
        decided: when, by the machine's monotonic clock.
        turn: when it was its turn; the same if it did not wait.
        wait_us: how long it was told to wait.
        cost: what it cost.
        held: how long its lease was held for certain; empty where there is none.
        store: when it was its turn by the store's own clock, which windows begin by.
    """

    decided: Span
    turn: Span
    wait_us: int
    cost: int
    held: Span
    store: Span


def passed_at(moment: int, cost: int = 1, *, wait_us: int = 0, until: int = 0) -> Passed:
    """A request whose moment is known exactly, by clocks that show the same."""
    turn = Span(moment + wait_us, moment + wait_us)
    return Passed(Span(moment, moment), turn, wait_us, cost, Span(moment, until), turn)


def excess(limit: Limit, passed: Sequence[Passed]) -> int:
    """How many more passed than the limit allows, where that is most; 0 or less if none did.

    Args:
        limit: the limit, of any algorithm that counts only what it lets through.
        passed: what passed for one key.
    """
    return LAWS[limit.algorithm](limit, passed) if passed else -limit.burst


def _token_bucket(limit: Limit, passed: Sequence[Passed]) -> int:
    """From any moment to any other: the burst, and what came back in between."""
    most = -limit.burst
    ends: list[tuple[int, int]] = []
    for one in sorted(passed, key=lambda one: one.turn.first, reverse=True):
        insort(ends, (one.turn.last, one.cost))
        within = 0
        for last, cost in ends:
            within += cost
            refilled = (last - one.turn.first) * limit.count // limit.period_us
            most = max(most, within - refilled - limit.burst)
    return most


def _sliding_window_log(limit: Limit, passed: Sequence[Passed]) -> int:
    """In any window of the period, its two ends included: the count."""
    firsts = [one.turn.first for one in passed]
    within = (
        sum(
            one.cost
            for one in passed
            if first <= one.turn.first and one.turn.last <= first + limit.period_us
        )
        for first in firsts
    )
    return max(within) - limit.count


def _windows(limit: Limit, passed: Sequence[Passed]) -> Counter[int]:
    """How much certainly passed in each window of the store's clock."""
    windows: Counter[int] = Counter()
    for one in passed:
        number = one.store.first // limit.period_us
        if number == one.store.last // limit.period_us:
            windows[number] += one.cost
    return windows


def _fixed_window(limit: Limit, passed: Sequence[Passed]) -> int:
    """In each window: the count."""
    return max(_windows(limit, passed).values(), default=0) - limit.count


def _sliding_window_counter(limit: Limit, passed: Sequence[Passed]) -> int:
    """The estimate at each admission, of what certainly came before it: at most the count."""
    period = limit.period_us
    windows = _windows(limit, passed)
    most = -limit.count
    for one in passed:
        number = one.store.first // period
        if number != one.store.last // period:
            continue
        current = one.cost + sum(
            other.cost
            for other in passed
            if other.decided.last < one.decided.first
            and other.store.first // period == number == other.store.last // period
        )
        left_us = period - one.store.last % period
        most = max(most, current + -(-windows[number - 1] * left_us // period) - limit.count)
    return most


def _paced_history(limit: Limit, passed: Sequence[Passed]) -> int:
    """Whoever finds the burst used in the past window waits: an interval behind the newest."""
    interval = interval_us(limit)
    most = -limit.burst
    for one in passed:
        oldest = one.decided.last - window_us(limit)
        counted = [
            other
            for other in passed
            if other.decided.last < one.decided.first and other.turn.first >= oldest
        ]
        used = min(sum(other.cost for other in counted), limit.burst)
        lacking = used + one.cost - limit.burst
        most = max(most, lacking if lacking <= 0 else lacking - one.wait_us // interval)
        if lacking > 0:
            newest = max(other.turn.first for other in counted)
            early_us = newest + lacking * interval - (one.decided.last + one.wait_us)
            most = max(most, -(-early_us // interval))
    return most


def _concurrency(limit: Limit, passed: Sequence[Passed]) -> int:
    """At every moment: leases that are certainly held."""
    changes = [
        change
        for one in passed
        if one.held.first < one.held.last
        for change in ((one.held.first, one.cost), (one.held.last, -one.cost))
    ]
    held = most = 0
    # What ends at a moment ends before what begins at it.
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most - limit.count


LAWS: Final[dict[str, Callable[[Limit, Sequence[Passed]], int]]] = {
    "token_bucket": _token_bucket,
    "sliding_window_log": _sliding_window_log,
    "sliding_window_counter": _sliding_window_counter,
    "fixed_window": _fixed_window,
    "paced_history": _paced_history,
    "concurrency": _concurrency,
}
"""From the name of an algorithm to its law."""
