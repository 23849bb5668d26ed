"""Smooth weighted round robin, as nginx has it.

Each candidate moves on by its weight at every choice, the foremost is taken and falls back by
the weight of all: with weights 5, 1 and 1 that gives a a b a c a a, not a a a a a b c. In any row
of choices as long as the sum of the weights each has exactly its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.proxy.upstream.balancing.candidate import Candidate


class RoundRobin:
    """In turn, by weight, interleaved."""

    __slots__ = ()

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """The candidate whose turn it is."""
        best = candidates[0]
        total = 0
        for candidate in candidates:
            weight = candidate.weight
            candidate.turn += weight
            total += weight
            if candidate.turn > best.turn:
                best = candidate
        best.turn -= total
        return best
