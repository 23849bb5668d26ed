"""The less busy of two targets drawn at random.

Many gateways that see the same counts would all send to the same target; two draws are enough
to spread them, and nearly as good as looking at all (Mitzenmacher, "The power of two choices in
randomized load balancing", 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.proxy.upstream.balancing.candidate import Candidate


class RandomTwo:
    """Of two drawn by weight, the one that has least to do for its weight.

    Args:
        dice: gives numbers from 0, included, to 1, excluded.
    """

    __slots__ = ("_dice",)

    def __init__(self, dice: Callable[[], float]) -> None:
        self._dice = dice

    def pick(self, candidates: Sequence[Candidate], key: str | None) -> Candidate:
        """The better of two different candidates."""
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
        """One by weight; `total` is the weight of those that take part."""
        left = int(self._dice() * total)
        for candidate in candidates:
            if candidate is without:
                continue
            left -= candidate.weight
            if left < 0:
                return candidate
        # A product of floats may round up to the whole.
        return candidates[-1] if candidates[-1] is not without else candidates[-2]
