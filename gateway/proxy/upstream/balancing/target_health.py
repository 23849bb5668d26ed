"""Which targets may be chosen, and with which weight.

A target is left out while checks find it unhealthy, or while it is ejected because requests
failed. A target that was ejected comes back on trial: a single failure ejects it again, for twice
as long, and a success ends the trial. The duration grows until the target has been healthy for as
long as it was last left out.

Ejection never removes the last healthy target. When checks leave no target, those that are only
ejected are candidates again, or else all: if checks fail for every target, the checks are more
likely at fault than the targets, and a request that may fail is better than one that must (Envoy
calls this panic mode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from gateway.proxy.upstream.balancing.candidate import Candidate
from gateway.proxy.upstream.balancing.ejection import Ejection
from gateway.proxy.upstream.balancing.slow_start import STEPS, ramped

NEVER: Final = 1 << 62


class Change(NamedTuple):
    """An event: a target was left out or came back.

    Attributes:
        target: its index.
        kind: what happened to it.
        for_us: how long it is ejected, in microseconds.
        is_learned: whether another worker of this gateway has judged the target.
    """

    target: int
    kind: Literal["unhealthy", "healthy", "ejected", "returned"]
    for_us: int = 0
    is_learned: bool = False


class EjectionRecord(NamedTuple):
    """An ejection, as workers tell each other.

    Attributes:
        until_us: when it ends.
        earlier: how many there were in a row, this one included.
    """

    until_us: int
    earlier: int


class _TargetState:
    """The state of one target."""

    __slots__ = (
        "candidate",
        "earlier",
        "failures",
        "is_healthy",
        "is_learned",
        "last_us",
        "latest_us",
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
        self.latest_us = 0
        self.is_learned = False
        self.returned_us = 0
        self.ramps_since_us: int | None = None


class TargetHealth:
    """The health of all targets of an upstream.

    Args:
        candidates: all targets, in order.
        ejection: when failures eject a target; None for never.
        slow_start_us: microseconds until a target that came back has its full weight; 0 for none.
        is_panic_allowed: whether targets that are left out are candidates if there are no others.

    Attributes:
        usable: those that may be chosen; empty only if panic is not allowed.
        due_us: when to call `refresh` next.
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
        self._targets = [_TargetState(candidate) for candidate in candidates]
        # An only target is never ejected: there is no better one.
        self._ejection = ejection if len(candidates) > 1 else None
        self._most = ejection.max_ejected(len(candidates)) if ejection is not None else 0
        self._ejected = 0
        self._slow_start_us = slow_start_us
        self._is_panic_allowed = is_panic_allowed
        self.usable: Sequence[Candidate] = list(candidates)
        self.due_us = NEVER

    def is_healthy(self, index: int) -> bool:
        """Return the result of the checks."""
        return self._targets[index].is_healthy

    def is_ejected(self, index: int) -> bool:
        """Return whether it is left out because of failures."""
        return bool(self._targets[index].until_us)

    @property
    def is_panic(self) -> bool:
        """Return whether all targets are left out."""
        return not any(_is_usable(target) for target in self._targets)

    def take_over(
        self,
        predecessor: TargetHealth,
        kept: Mapping[int, int],
        now_us: int,
        *,
        is_checked_alike: bool,
    ) -> None:
        """Continue with what is known of targets that were part of another set.

        Args:
            predecessor: the health of that set.
            kept: the index of such a target, and its index there.
            now_us: the current time.
            is_checked_alike: whether its checks mean the same here.
        """
        for index, before in kept.items():
            target, known = self._targets[index], predecessor._targets[before]
            if is_checked_alike:
                target.is_healthy = known.is_healthy
            target.ramps_since_us = known.ramps_since_us if self._slow_start_us else None
            if self._ejection is None:
                continue
            target.failures = min(known.failures, self._ejection.failures - 1)
            target.earlier, target.last_us = known.earlier, known.last_us
            target.returned_us, target.latest_us = known.returned_us, known.latest_us
            if known.until_us and self._ejected < self._most:
                target.until_us, target.is_learned = known.until_us, known.is_learned
                self._ejected += 1
        self._recompute(now_us)

    def refresh(self, now_us: int) -> list[Change]:
        """End ejections whose time is over, and raise the weights of targets that came back."""
        changes = []
        for target in self._targets:
            if target.until_us and target.until_us <= now_us:
                self._end_ejection(target, now_us)
                index, is_learned = target.candidate.index, target.is_learned
                changes.append(Change(index, "returned", is_learned=is_learned))
        self._recompute(now_us)
        return changes

    def succeeded(self, index: int, now_us: int) -> None:
        """Record a request that was answered normally."""
        target = self._targets[index]
        if target.until_us:
            return  # It was sent before the ejection, or because there was no other target.
        target.failures = 0
        if target.earlier and now_us - target.returned_us >= target.last_us:
            target.earlier = 0

    def has_no_failures(self, index: int) -> bool:
        """Return whether a success would change nothing."""
        target = self._targets[index]
        return not target.failures and not target.earlier

    def failed(self, index: int, now_us: int) -> list[Change]:
        """Record a request without an answer, or with one that says a gateway has no upstream."""
        target, ejection = self._targets[index], self._ejection
        if ejection is None or target.until_us:
            return []
        target.failures += 1
        if target.failures < ejection.failures or self._ejected >= self._most:
            return []
        if not self._can_be_missed(target):
            return []
        length_us = ejection.length_us(target.earlier)
        record = EjectionRecord(now_us + length_us, target.earlier + 1)
        self._eject(target, record, length_us, now_us, is_learned=False)
        return [Change(index, "ejected", length_us)]

    def ejection_of(self, index: int) -> EjectionRecord | None:
        """Return the present ejection of a target; None if it is not ejected."""
        target = self._targets[index]
        return EjectionRecord(target.until_us, target.earlier) if target.until_us else None

    def learn(self, index: int, record: EjectionRecord, now_us: int) -> list[Change]:
        """Eject a target because another worker has, unless that is known or over."""
        target, ejection = self._targets[index], self._ejection
        is_news = record.until_us > max(now_us, target.latest_us)
        if ejection is None or target.until_us or not is_news:
            return []
        if self._ejected >= self._most or not self._can_be_missed(target):
            return []
        length_us = ejection.length_us(record.earlier - 1)
        self._eject(target, record, length_us, now_us, is_learned=True)
        return [Change(index, "ejected", record.until_us - now_us, is_learned=True)]

    def _can_be_missed(self, target: _TargetState) -> bool:
        return any(_is_usable(other) for other in self._targets if other is not target)

    def _eject(
        self,
        target: _TargetState,
        record: EjectionRecord,
        length_us: int,
        now_us: int,
        *,
        is_learned: bool,
    ) -> None:
        target.until_us = target.latest_us = record.until_us
        target.earlier = record.earlier
        target.last_us = length_us
        target.is_learned = is_learned
        self._ejected += 1
        self._recompute(now_us)

    def checked(self, index: int, now_us: int, *, is_healthy: bool) -> list[Change]:
        """Record that checks find a target healthy, or no longer."""
        target = self._targets[index]
        if target.is_healthy == is_healthy:
            return []
        target.is_healthy = is_healthy
        if is_healthy:
            if target.until_us:
                # Failures so far happened before the checks passed again.
                self._end_ejection(target, now_us)
                target.failures = 0
            self._begin(target, now_us)
        self._recompute(now_us)
        return [Change(index, "healthy" if is_healthy else "unhealthy")]

    def _end_ejection(self, target: _TargetState, now_us: int) -> None:
        target.until_us = 0
        target.returned_us = now_us
        self._ejected -= 1
        if self._ejection is not None:
            target.failures = self._ejection.failures - 1
        self._begin(target, now_us)

    def _begin(self, target: _TargetState, now_us: int) -> None:
        """Bring a target back: without saved-up turns, and with a slow start."""
        target.candidate.turn = 0
        if self._slow_start_us:
            target.ramps_since_us = now_us

    def _recompute(self, now_us: int) -> None:
        """Recompute which targets may be chosen, with which weight, and when that changes."""
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
        usable = [target for target in self._targets if _is_usable(target)]
        if not usable and self._is_panic_allowed:
            usable = [target for target in self._targets if target.is_healthy] or self._targets
        self.usable = [target.candidate for target in usable]


def _is_usable(target: _TargetState) -> bool:
    return target.is_healthy and not target.until_us
