"""The same target for the same key, with as few exceptions as possible.

Weighted rendezvous hashing: key and target together give each target a score, and the highest
wins (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998; weights as
in Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005). When a target goes,
only its own keys move, each to the second of its scores; when one is added, or grows in weight, it
only takes keys. There is no table to build, and gateways agree without communicating.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

from gateway.proxy.upstream.balancing.candidate import Candidate, hash_of
from gateway.proxy.upstream.balancing.round_robin import RoundRobin

_MASK: Final = (1 << 64) - 1
_UNIT: Final = 2.0**-53


class ConsistentHash:
    """Chooses by the request's key; requests without a key take turns."""

    __slots__ = ("_in_turn",)

    def __init__(self) -> None:
        self._in_turn = RoundRobin()

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """Return the candidate with the highest score for the key."""
        if key is None:
            return self._in_turn.pick(candidates, key)
        hashed = hash_of(key)
        return max(candidates, key=lambda candidate: _score(hashed, candidate))


def _score(hashed: int, candidate: Candidate) -> float:
    """Return a score from uniform bits; its chance to be the highest is the weight's share."""
    # The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
    bits = hashed ^ candidate.seed
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    bits ^= bits >> 31
    return candidate.weight / -log(((bits >> 11) + 0.5) * _UNIT)
