"""Which targets may be chosen, and with which weight.

A target is left out while checks find it unhealthy, or while it is ejected for the failures of
requests. One that was ejected comes back on trial: a single failure ejects it again, for twice
as long, and a success ends the trial. The time grows until the target has been well for as long
as it was last left out.

Ejection never takes the last one that is well. When checks leave nobody, those that are only
ejected are candidates again, or else all: what checks find wrong with every target is more likely
wrong with the checks, and a request that may fail is better than one that must (Envoy calls that
panic mode).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from gateway.proxy.upstream.balancing.candidate import Candidate
from gateway.proxy.upstream.balancing.ejection import Ejection
from gateway.proxy.upstream.balancing.slow_start import STEPS, ramped

NEVER: Final = 1 << 62


class Change(NamedTuple):
    """A target was left out or came back.

    Attributes:
        target: which one, by its place.
        kind: what happened to it.
        for_us: how long it is ejected, in microseconds.
    """

    target: int
    kind: Literal["unhealthy", "healthy", "ejected", "returned"]
    for_us: int = 0


class _Target:
    """What is known of one target."""

    __slots__ = (
        "candidate",
        "earlier",
        "failures",
        "is_healthy",
        "last_us",
        "ramps_since_us",
        "returned_us",
        "until_us",
    )

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.is_healthy = True
        self.failures = 0
        self.until_us = 0
        self.earlier = 0
        self.last_us = 0
        self.returned_us = 0
        self.ramps_since_us: int | None = None


class TargetHealth:
    """The standing of all targets of an upstream.

    Args:
        candidates: all targets, in order.
        ejection: when failures eject a target; None for never.
        slow_start_us: microseconds in which a target that came back gets its weight; 0 for at once.
        is_panic_allowed: whether those that are left out are candidates when nobody else is.

    Attributes:
        usable: those that may be chosen; empty only if panic is not allowed.
        due_us: when `refresh` is to be called next.
    """

    __slots__ = (
        "_ejected",
        "_ejection",
        "_is_panic_allowed",
        "_most",
        "_slow_start_us",
        "_targets",
        "due_us",
        "usable",
    )

    def __init__(
        self,
        candidates: Sequence[Candidate],
        ejection: Ejection | None,
        slow_start_us: int = 0,
        *,
        is_panic_allowed: bool = True,
    ) -> None:
        self._targets = [_Target(candidate) for candidate in candidates]
        # A target that is alone is never ejected: there is none that would do better.
        self._ejection = ejection if len(candidates) > 1 else None
        self._most = ejection.most(len(candidates)) if ejection is not None else 0
        self._ejected = 0
        self._slow_start_us = slow_start_us
        self._is_panic_allowed = is_panic_allowed
        self.usable: Sequence[Candidate] = list(candidates)
        self.due_us = NEVER

    def is_healthy(self, index: int) -> bool:
        """What checks found."""
        return self._targets[index].is_healthy

    def is_ejected(self, index: int) -> bool:
        """Whether it is left out for failures."""
        return bool(self._targets[index].until_us)

    @property
    def is_panic(self) -> bool:
        """Whether there is nobody who should be chosen."""
        return not any(_is_well(target) for target in self._targets)

    def refresh(self, now_us: int) -> list[Change]:
        """End ejections whose time is over, and raise the weights of those that came back."""
        changes = []
        for target in self._targets:
            if target.until_us and target.until_us <= now_us:
                self._end_ejection(target, now_us)
                changes.append(Change(target.candidate.index, "returned"))
        self._settle(now_us)
        return changes

    def succeeded(self, index: int, now_us: int) -> None:
        """A request was answered as it should be."""
        target = self._targets[index]
        if target.until_us:
            return  # It was sent before the ejection, or because nobody was left.
        target.failures = 0
        if target.earlier and now_us - target.returned_us >= target.last_us:
            target.earlier = 0

    def is_spotless(self, index: int) -> bool:
        """Whether a success would change nothing."""
        target = self._targets[index]
        return not target.failures and not target.earlier

    def failed(self, index: int, now_us: int) -> list[Change]:
        """A request was not answered, or as if by a gateway that has nobody to ask."""
        target, ejection = self._targets[index], self._ejection
        if ejection is None or target.until_us:
            return []
        target.failures += 1
        if target.failures < ejection.failures or self._ejected >= self._most:
            return []
        if not any(_is_well(other) for other in self._targets if other is not target):
            return []
        target.last_us = ejection.length_us(target.earlier)
        target.earlier += 1
        target.until_us = now_us + target.last_us
        self._ejected += 1
        self._settle(now_us)
        return [Change(index, "ejected", target.last_us)]

    def checked(self, index: int, now_us: int, *, is_healthy: bool) -> list[Change]:
        """Checks find a target healthy, or not any more."""
        target = self._targets[index]
        if target.is_healthy == is_healthy:
            return []
        target.is_healthy = is_healthy
        if is_healthy:
            if target.until_us:
                # Whatever failed was before the checks passed again.
                self._end_ejection(target, now_us)
                target.failures = 0
            self._begin(target, now_us)
        self._settle(now_us)
        return [Change(index, "healthy" if is_healthy else "unhealthy")]

    def _end_ejection(self, target: _Target, now_us: int) -> None:
        target.until_us = 0
        target.returned_us = now_us
        self._ejected -= 1
        if self._ejection is not None:
            target.failures = self._ejection.failures - 1
        self._begin(target, now_us)

    def _begin(self, target: _Target, now_us: int) -> None:
        """A target comes back: with no turns saved up, and slowly."""
        target.candidate.turn = 0
        if self._slow_start_us:
            target.ramps_since_us = now_us

    def _settle(self, now_us: int) -> None:
        """Work out anew who may be chosen, with which weight, and when that changes."""
        due = NEVER
        for target in self._targets:
            if target.until_us:
                due = min(due, target.until_us)
            if target.ramps_since_us is not None:
                candidate = target.candidate
                elapsed = now_us - target.ramps_since_us
                candidate.weight = ramped(candidate.full_weight, elapsed, self._slow_start_us)
                if elapsed >= self._slow_start_us:
                    target.ramps_since_us = None
                else:
                    due = min(due, now_us + max(1, self._slow_start_us // STEPS))
        self.due_us = due
        usable = [target for target in self._targets if _is_well(target)]
        if not usable and self._is_panic_allowed:
            usable = [target for target in self._targets if target.is_healthy] or self._targets
        self.usable = [target.candidate for target in usable]


def _is_well(target: _Target) -> bool:
    return target.is_healthy and not target.until_us
