"""What processes tell each other of their counters: nothing is lost, in whatever order it comes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.observe.metrics import GatewayMetrics, Histogram, RouteMetrics, add, pieces
from gateway.observe.metrics.exposition import render
from gateway.observe.metrics.families import (
    BREAKER_STATES,
    COUNT,
    EVER,
    EVERY,
    FIRST,
    MOST,
    SOME,
    SUM,
    SUM_IF_KNOWN,
    TIMES,
    WORST,
    Field,
    Join,
)
from gateway.observe.metrics.plain import FIELDS
from tests.observe.metrics.room import Room

TEXTS: Final = ("a", "b", "c")

VALUES: Final[dict[Join, Callable[[random.Random], Any]]] = {
    COUNT: lambda dice: dice.randrange(5),
    SUM: lambda dice: dice.randrange(5),
    EVER: lambda dice: dice.random() < 0.5,
    SUM_IF_KNOWN: lambda dice: dice.choice([None, 0, 3]),
    EVERY: lambda dice: dice.random() < 0.5,
    SOME: lambda dice: dice.random() < 0.5,
    MOST: lambda dice: dice.randrange(1, 5),
    WORST: lambda dice: dice.choice(BREAKER_STATES),
    FIRST: lambda dice: {dice.choice(TEXTS): dice.randrange(9) for _ in range(3)},
}
"""For each way to add a counter up, what it may be."""


def _set(child: Any, field: Field, dice: random.Random) -> None:
    value = getattr(child, field.name)
    if isinstance(value, Histogram):
        assert field.join == TIMES
        for _ in range(dice.randrange(3)):
            value.observe(dice.randrange(10**8))
    elif isinstance(child, RouteMetrics):
        for _ in range(dice.randrange(3)):
            child.answered(200, dice.randrange(10**8))
    elif field.join in VALUES:
        setattr(child, field.name, VALUES[field.join](dice))
    else:
        one = {"answers": ("ask", "ok"), "messages": ("in", "ok")}
        for _ in range(1 + dice.randrange(3)):
            value[one.get(field.name, dice.choice(TEXTS))] += dice.randrange(1, 5)


def count(metrics: GatewayMetrics, seed: int) -> GatewayMetrics:
    """Count what some process may have counted, of every kind."""
    dice = random.Random(seed)
    for kind, fields in FIELDS.values():
        for _ in range(1 if not kind.labels else dice.randrange(3)):
            child = kind.child(metrics, *(dice.choice(TEXTS) for _ in kind.labels))
            for field in fields:
                _set(child, field, dice)
    metrics.settle()
    return metrics


def summed(seeds: list[int], *, have_ended: bool = False) -> bytes:
    """The scrape of several processes that know of each other what they wrote, and said in JSON."""
    total = GatewayMetrics("1", ManualClock(1))
    for seed in seeds:
        room = Room()
        process = count(room.process(), seed)
        for piece in () if have_ended else json.loads(json.dumps(list(pieces(process)))):
            add(total, piece)
        room.add_to(total)
    return render(total)


def lines(scrape: bytes) -> list[bytes]:
    """In an order that does not depend on who came first.

    Without headings: those of families that have no samples depend on whether a process has named
    what they would be of, such as a route, which it tells nobody before it has counted something.
    """
    return sorted(line for line in scrape.splitlines() if not line.startswith(b"#"))


@given(seed=st.integers(0, 2**32))
def test_of_one_process_nothing_is_lost(seed: int) -> None:
    """What others know of it is what it would show itself."""
    alone = count(GatewayMetrics("1", ManualClock(1)), seed)
    assert lines(summed([seed])) == lines(render(alone))


@given(seeds=st.lists(st.integers(0, 2**32), min_size=2, max_size=4))
def test_the_sum_does_not_depend_on_the_order(seeds: list[int]) -> None:
    """Processes are asked in any order, and those that have ended come before or after."""
    for have_ended in (False, True):
        there = lines(summed(seeds, have_ended=have_ended))
        assert there == lines(summed(seeds[::-1], have_ended=have_ended))
