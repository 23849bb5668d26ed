"""A target as balancers see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, Protocol

SCALE: Final = 1000
"""The units of weight 1, so that a fraction of a weight is a whole number too."""


class Candidate:
    """A target that may be chosen.

    Args:
        index: its place among the targets of the configuration.
        name: its name on every gateway, independent of the order of the targets there.
        weight: as configured.
        in_flight: returns its number of requests in flight.

    Attributes:
        index: as given.
        full_weight: its weight in units of 1 / `SCALE`.
        weight: its present weight; less than `full_weight` during a slow start.
        in_flight: as given.
        seed: 64 bits made from the name.
        turn: its progress towards its next turn, for `RoundRobin`.
    """

    __slots__ = ("full_weight", "in_flight", "index", "seed", "turn", "weight")

    def __init__(
        self, index: int, name: str, weight: int, in_flight: Callable[[], int] = lambda: 0
    ) -> None:
        self.index = index
        self.full_weight = weight * SCALE
        self.weight = self.full_weight
        self.in_flight = in_flight
        self.seed = hash_of(name)
        self.turn = 0

    def __repr__(self) -> str:
        return f"<Candidate {self.index}: weight {self.weight} of {self.full_weight}>"


class Balancer(Protocol):
    """Chooses one of several targets."""

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """Return the target for one request.

        Args:
            candidates: the targets to choose from; at least one.
            key: the key that the request is balanced by; None if it has none.
        """


def hash_of(text: str) -> int:
    """Return 64 bits that are the same on every gateway."""
    data = text.encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
