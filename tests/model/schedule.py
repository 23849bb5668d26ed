"""What is done to gateways and their store in the course of one run, all from one seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.model.limits import GATEWAYS

CLOCKS: Final = ("+30s", "-30s", "+0 x1.05")
"""How the clocks of gateways are wrong."""
GATEWAY_FAULTS: Final = ("killed", "paused")
SHARED_FAULTS: Final = ("frozen", "killed", "disconnected")

STORES: Final[dict[str, tuple[str, ...]]] = {
    "redis": (*SHARED_FAULTS, "forgotten_scripts"),
    "redis-forgetful": (*SHARED_FAULTS, "forgotten_scripts"),
    "redis-clock": ("set_forward", "set_back", "frozen"),
    "mariadb": (*SHARED_FAULTS, "locked"),
    "mariadb-clock": ("set_forward", "set_back", "frozen"),
    "cluster": ("failed_over", "changed_places", "moved_slot", "isolated", "disconnected"),
    "sentinel": ("failed_over", "disconnected", "isolated"),
}
"""From the kind of a store to the faults that are its own."""

SLOW: Final = {"failed_over", "isolated", "changed_places"}
"""Faults that take as long as the servers take to notice and agree."""


class Fault(NamedTuple):
    """Something that is done.

    Attributes:
        at_s: when, in seconds from the beginning; later if what was done before is not over.
        what: its name.
        target: which gateway or server, as a number to be taken modulo how many there are.
        lasts_s: for how long.
    """

    at_s: float
    what: str
    target: int
    lasts_s: float


class Schedule(NamedTuple):
    """One run.

    Attributes:
        seed: what it was made from.
        store: a name of `STORES`.
        on_store_error: what all policies do without the store.
        clocks: how the clock of each gateway is wrong.
        of_gateways, of_store: what is done to either, one after the other.
        seconds: how long faults are begun for.
    """

    seed: int
    store: str
    on_store_error: str
    clocks: tuple[str, ...]
    of_gateways: tuple[Fault, ...]
    of_store: tuple[Fault, ...]
    seconds: float


def schedule(store: str, seed: int, seconds: float) -> Schedule:
    """The run that a seed stands for.

    Any two seeds that follow each other are of both kinds of `on_store_error`, and runs of some
    length have each fault of their store at least once.
    """
    dice = random.Random(f"{store}:{seed}")
    faults = STORES[store]
    begin = seed * 2 % len(faults)
    # Each run begins with another fault, so that few of them have met all.
    in_turn = (*faults[begin:], *faults[:begin])
    return Schedule(
        seed,
        store,
        ("closed", "local")[seed % 2],
        tuple(dice.sample(CLOCKS, GATEWAYS)),
        _series(dice, GATEWAY_FAULTS, seconds),
        _series(dice, in_turn, seconds),
        seconds,
    )


def _series(dice: random.Random, faults: Sequence[str], seconds: float) -> tuple[Fault, ...]:
    """Faults one after the other, each kind once and then any of them."""
    found: list[Fault] = []
    at_s = dice.uniform(0.3, 1.0)
    while at_s < seconds:
        what = faults[len(found)] if len(found) < len(faults) else dice.choice(faults)
        lasts_s = dice.uniform(0.1, 1.2)
        found.append(Fault(at_s, what, dice.randrange(1000), lasts_s))
        at_s += lasts_s + dice.uniform(0.3, 1.0) + (2.5 if what in SLOW else 0)
    return tuple(found)
