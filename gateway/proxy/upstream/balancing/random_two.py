"""The less busy of two targets drawn at random.

Many gateways that see the same counts would all send to the same target; drawing two is enough
to spread the requests, and nearly as good as comparing all (Mitzenmacher, "The power of two choices
in randomized load balancing", 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.proxy.upstream.balancing.candidate import Candidate


class RandomTwo:
    """Draws two by weight, and chooses the one with the fewest requests for its weight.

    Args:
        dice: returns numbers from 0 (inclusive) to 1 (exclusive).
    """

    __slots__ = ("_dice",)

    def __init__(self, dice: Callable[[], float]) -> None:
        self._dice = dice

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """Return the better of two different candidates."""
        if len(candidates) == 1:
            return candidates[0]
        total = sum(candidate.weight for candidate in candidates)
        first = self._draw(candidates, total, None)
        second = self._draw(candidates, total - first.weight, first)
        is_better = second.in_flight() * first.weight < first.in_flight() * second.weight
        return second if is_better else first

    def _draw(
        self, candidates: Sequence[Candidate], total: int, without: Candidate | None
    ) -> Candidate:
        """Return one by weight; `total` is the weight of all candidates."""
        left = int(self._dice() * total)
        for candidate in candidates:
            if candidate is without:
                continue
            left -= candidate.weight
            if left < 0:
                return candidate
        # A product of floats may round up to the total.
        return candidates[-1] if candidates[-1] is not without else candidates[-2]
