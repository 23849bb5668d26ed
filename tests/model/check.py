"""Whether what limiter processes noted is what was promised, whatever was done to them.

Pure. A store that lost something has a life before that and one after; within each the laws of
`tests.model.laws` hold exactly, and over all of them no more than the slack of its losses is too
much. What a process decided without its store is held to its own share of each limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.limits.rate import Limit
from tests.model.history import PASSED, REFUSED, Asked, Notes, Span
from tests.model.laws import Passed, excess

US: Final = 1_000_000
TIMER_US: Final = 100_000
"""How much later than it is due a timer may fire in a process that runs."""
STARVED_US: Final = 5 * US
"""For how long a process that is not stopped may be kept from running: the machine is busy."""

Name = tuple[str, str]
"""A limit's scope and an identity."""


class Loss(NamedTuple):
    """A moment at which a store may forget, or reckon anew.

    Attributes:
        what: the fault, for people.
        span: between which.
        is_gap: whether the store decides nothing within the span.
        forgets_all: whether everything before is forgotten; if not, it is no more than what was
            decided within the span.
        split_us: for how long within the span two servers may have decided at the same time.
        keys: the identities concerned; None for all.
        step_us: by how much the store's clock was set forward (or back, if negative).
    """

    what: str
    span: Span
    is_gap: bool = False
    forgets_all: bool = False
    split_us: int = 0
    keys: frozenset[str] | None = None
    step_us: int = 0

    def concerns(self, name: Name) -> bool:
        """Whether it may concern a key."""
        return self.keys is None or name[1] in self.keys

    def is_before(self, decided: Span) -> bool:
        """Whether a decision was certainly made before it."""
        return decided.last <= (self.span.last if self.is_gap else self.span.first - 1)

    def is_after(self, decided: Span) -> bool:
        """Whether a decision was certainly made after it."""
        return decided.first >= (self.span.first if self.is_gap else self.span.last + 1)

    def may_forget(self, decided: Span) -> bool:
        """Whether a decision may be forgotten by it."""
        if self.forgets_all:
            return not self.is_after(decided)
        return decided.last >= self.span.first and decided.first <= self.span.last


@dataclass(frozen=True)
class Course:
    """What was done during a run, and with what.

    Attributes:
        limits: the limits, by scope.
        gateways: how many share them.
        deadline_us: how long one decision may wait for the store.
        on_store_error: what all policies do without it.
        wall_us: from the monotonic clock to the store's at the beginning.
        is_sharded: whether limits of one ask may be counted by different servers.
        losses: what the store may have lost, in order of time.
        stopped: for each process when it was stopped and could not run.
        settled: the moment at which the last fault was over.
        survivors: the names of the processes that lived to the end.
    """

    limits: Mapping[str, Limit]
    gateways: int
    deadline_us: int
    on_store_error: str
    wall_us: Span
    is_sharded: bool = False
    losses: Sequence[Loss] = ()
    stopped: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    settled: int = 0
    survivors: Sequence[str] = ()


class Finding(NamedTuple):
    """How a key fared.

    Attributes:
        name: its limit and identity.
        passed: what all its requests that passed cost.
        excess: by how much that was more than the limit allows, where it was most.
        slack: by how much it may be, with what the store lost.
    """

    name: Name
    passed: int
    excess: int
    slack: int


def violations(course: Course, notes: Sequence[Notes]) -> list[str]:
    """All promises that were not kept, in words."""
    return [
        *_of_the_limits(course, notes),
        *_of_processes_alone(course, notes),
        *_of_bounds(course, notes),
        *_of_liveness(course, notes),
    ]


def findings(course: Course, notes: Sequence[Notes]) -> list[Finding]:
    """For each key how much passed, and how that compares with what is allowed in all."""
    found = []
    for name, passed in sorted(_by_store(course, notes).items()):
        limit = course.limits[name[0]]
        slack = 0
        for loss in course.losses:
            if loss.concerns(name):
                slack += _slack(course, notes, loss, name, passed)
        total = sum(one.cost for one in passed)
        found.append(Finding(name, total, excess(limit, passed), slack))
    return found


def _slack(
    course: Course, notes: Sequence[Notes], loss: Loss, name: Name, passed: Sequence[Passed]
) -> int:
    """How much more than its limit a key may let through because of a loss.

    One limit where all was forgotten; else what was decided while nobody knew of it, at most one
    limit. A second server that decides at the same time lets through what its clock refills.
    """
    limit = course.limits[name[0]]
    owed = _owed(course, notes, loss, name)
    if loss.forgets_all:
        return limit.burst + owed
    forgotten = sum(one.cost for one in passed if loss.may_forget(one.decided))
    refilled = -(-limit.count * loss.split_us // limit.period_us)
    return min(forgotten, limit.burst + refilled) + owed


def _owed(course: Course, notes: Sequence[Notes], loss: Loss, name: Name) -> int:
    """What may be given back to a store that does not remember having been asked for it."""
    return sum(
        asked.cost
        for each in notes
        for asked in each.asked
        if name in asked.keys
        and _may_give_back(course, asked)
        and loss.may_forget(Span(asked.sent, asked.received))
        and asked.ended + asked.late_us >= loss.span.first
    )


def _may_give_back(course: Course, asked: Asked) -> bool:
    """Whether a store may have been given back what an ask took."""
    if asked.kind == PASSED:
        return False
    if asked.kind == REFUSED or asked.alone:
        # What some servers took for an ask that others refused, or did not answer.
        return course.is_sharded and len(asked.keys) > 1
    return True


def _of_the_limits(course: Course, notes: Sequence[Notes]) -> Iterator[str]:
    for name, passed in _by_store(course, notes).items():
        limit = course.limits[name[0]]
        losses = [loss for loss in course.losses if loss.concerns(name)]
        for life, owed in _lives(course, notes, losses, name, passed):
            too_much = excess(limit, life) - owed
            if too_much > 0:
                yield f"{name}: {too_much} more than {limit.count} in a life of the store"
    if not any(loss.step_us for loss in course.losses):
        for finding in findings(course, notes):
            if finding.excess > finding.slack:
                yield f"{finding.name}: {finding.excess} too much, of {finding.slack} lost"


def _lives(
    course: Course,
    notes: Sequence[Notes],
    losses: Sequence[Loss],
    name: Name,
    passed: Sequence[Passed],
) -> Iterator[tuple[list[Passed], int]]:
    """Parts of what passed that a store has counted together for certain.

    With each comes what it may have been given back that it had never counted.
    """
    ends = [loss for loss in losses if loss.forgets_all]
    for begin, end in zip([None, *ends], [*ends, None], strict=True):
        life = [
            one
            for one in passed
            if (begin is None or begin.is_after(one.decided))
            and (end is None or end.is_before(one.decided))
        ]
        owed = 0 if begin is None else _owed(course, notes, begin, name)
        for loss in losses:
            if loss.forgets_all or not life:
                continue
            if not loss.split_us:
                # Of the old server alone, with what its heir does not know of.
                yield [one for one in life if one.decided.last <= loss.span.last], owed
            life = [_forgetting(one, loss) for one in life if not loss.may_forget(one.decided)]
            owed += _owed(course, notes, loss, name)
        yield life, owed


def _forgetting(one: Passed, loss: Loss) -> Passed:
    """What is certain of a lease if renewals may be forgotten: nothing that begins behind it."""
    if not one.decided.last < loss.span.first < one.held.last:
        return one
    return one._replace(held=Span(one.held.first, loss.span.first))


def _by_store(course: Course, notes: Sequence[Notes]) -> dict[Name, list[Passed]]:
    """What the store let through, by key."""
    found: dict[Name, list[Passed]] = defaultdict(list)
    for each in notes:
        for asked in each.asked:
            if asked.kind != PASSED or asked.alone:
                continue
            steps = sum(
                loss.step_us
                for loss in course.losses
                if loss.is_after(Span(asked.sent, asked.received))
            )
            low, high = course.wall_us.first + steps, course.wall_us.last + steps
            for place, name in enumerate(asked.keys):
                one = _passed(course, each, asked, place)
                store = Span(one.turn.first + low, one.turn.last + high)
                found[name].append(one._replace(store=store))
    return found


def _passed(course: Course, notes: Notes, asked: Asked, place: int) -> Passed:
    """What one limit of an ask let through; its windows are those of the monotonic clock."""
    wait_us = asked.waits_us[place]
    if wait_us and place == asked.slowest:
        turn = Span(max(asked.ended - _delay(notes, asked), asked.sent), asked.ended)
    else:
        turn = Span(asked.sent + wait_us, asked.received + wait_us)
    held = _held(course.limits[asked.keys[place][0]], notes, asked)
    return Passed(Span(asked.sent, asked.received), turn, wait_us, asked.cost, held, turn)


def _delay(notes: Notes, asked: Asked) -> int:
    """How much later than its turn a request that waited may have gone on.

    A process reckons a turn from when it heard of it. And who leaves a queue hands on his turn, so
    that it may be somebody else's whose answer took longer.
    """
    name = asked.keys[asked.slowest]
    answers = (
        other.received - other.sent
        for other in notes.asked
        if name in other.keys and other.sent <= asked.ended and other.ended >= asked.sent
    )
    return max(answers) + asked.late_us + TIMER_US // 10


def _held(limit: Limit, notes: Notes, asked: Asked) -> Span:
    """How long a lease was held for certain: until it expires or its release begins."""
    if limit.algorithm != "concurrency":
        return Span(0, 0)
    until = asked.sent + limit.period_us
    for kept in notes.kept:
        if kept.number != asked.number:
            continue
        if kept.is_release:
            until = min(until, kept.sent)
        elif kept.held:
            until = max(until, kept.sent + limit.period_us)
    return Span(asked.received, until)


def _of_processes_alone(course: Course, notes: Sequence[Notes]) -> Iterator[str]:
    """Closed lets nothing pass; local no more than this process's share of the limit."""
    for each in notes:
        found: dict[Name, list[Passed]] = defaultdict(list)
        for asked in each.asked:
            if asked.kind != PASSED or not asked.alone:
                continue
            if course.on_store_error == "closed":
                yield f"{each.name}: ask {asked.number} passed without the store"
                return
            for place, name in enumerate(asked.keys):
                one = _passed(course, each, asked, place)
                if course.limits[name[0]].algorithm == "fixed_window":
                    one = one._replace(store=asked.wall)
                found[name].append(one)
        for name, passed in found.items():
            share = course.limits[name[0]].share(course.gateways)
            too_much = excess(share, passed)
            if too_much > 0:
                yield f"{each.name} alone, {name}: {too_much} more than {share.count}"


def _of_bounds(course: Course, notes: Sequence[Notes]) -> Iterator[str]:
    """Nothing takes longer than its bound, but for as long as its process was kept from running."""
    for each in notes:
        stopped = course.stopped.get(each.name, ())
        for asked in each.asked:
            took = asked.received - asked.sent
            bound = course.deadline_us + asked.late_us + TIMER_US
            if asked.late_us > course.deadline_us / 4:
                # The answer may have come while the process did not run: it is looked for again.
                bound += course.deadline_us
            if took > bound:
                yield f"{each.name}: ask {asked.number} took {took} us, of {bound} at most"
            waited = asked.ended - asked.received
            longest = max(asked.waits_us, default=0)
            if asked.kind == PASSED and longest and waited > longest + asked.late_us + TIMER_US:
                yield f"{each.name}: ask {asked.number} waited {waited} us instead of {longest}"
            if asked.late_us > STARVED_US and not _overlap(stopped, asked):
                yield f"{each.name}: did not run for {asked.late_us} us although nobody stopped it"


def _overlap(spans: Iterable[Span], asked: Asked) -> bool:
    return any(span.first <= asked.ended and span.last >= asked.sent for span in spans)


def _of_liveness(course: Course, notes: Sequence[Notes]) -> Iterator[str]:
    """Each process that lives decides by the store again when all is well."""
    for each in notes:
        if each.name in course.survivors and not decides_by_store(each, course.settled):
            yield f"{each.name}: does not decide by the store again when all is well"


def decides_by_store(notes: Notes, since: int) -> bool:
    """Whether a process has decided by the store after a moment, and most lately as well."""
    decided = [one for one in notes.asked if one.sent >= since and one.kind in (PASSED, REFUSED)]
    return any(not one.alone for one in decided[-20:])
