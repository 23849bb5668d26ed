"""Smooth weighted round robin, as in nginx.

Each candidate advances by its weight at every choice; the foremost is taken and falls back by the
total weight: weights 5, 1 and 1 give a a b a c a a, not a a a a a b c. In any sequence of choices
as long as the sum of the weights, each candidate has exactly its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.proxy.upstream.balancing.candidate import Candidate


class RoundRobin:
    """Chooses candidates in turn, by weight, interleaved."""

    __slots__ = ()

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """Return the candidate whose turn it is."""
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
