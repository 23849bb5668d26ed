"""The target with the fewest requests in flight, by weight."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.proxy.upstream.balancing.candidate import Candidate
from gateway.proxy.upstream.balancing.round_robin import RoundRobin


class LeastRequests:
    """Chooses the candidate with the fewest requests for its weight; ties take turns."""

    __slots__ = ("_in_turn",)

    def __init__(self) -> None:
        self._in_turn = RoundRobin()

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """Return the candidate with the fewest requests, divided by its weight."""
        level: list[Candidate] = []
        requests, weight = 1, 0
        for candidate in candidates:
            has = candidate.in_flight()
            # has / candidate.weight compared with requests / weight, in whole numbers.
            mine, best = has * weight, requests * candidate.weight
            if mine < best:
                requests, weight = has, candidate.weight
                level = [candidate]
            elif mine == best:
                level.append(candidate)
        return level[0] if len(level) == 1 else self._in_turn.pick(level, key)
