"""Eventual decisions, between requests and a store: reports and probes, a few at a time.

No request waits for them, and none may be delayed by them: one call follows the other, each of a
bounded size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.base.clock import US, Clock
from gateway.limiter.local.eventual import EventualState, Probe
from gateway.limiter.local.leasing import GiveBack
from gateway.limiter.outcome import DecideAlone, Outcome, Pending
from gateway.limiter.reports import probe_ask
from gateway.limits.consistency_mode import Eventual
from gateway.limits.decision import Decision
from gateway.limits.rate import Limit
from gateway.stores.base import Ask

REPORTS_A_CALL: Final = 64
"""Asks in one call of the store; the next call is made when that is answered."""
PROBES_PER_CALL: Final = 64
PROBE_PAUSE_S: Final = 0.02
"""How many keys the store is asked about at a time, and the pause before more: a flood of new keys
costs it a few thousand asks per second, whatever its size."""

Send = Callable[[list[Pending]], None]


class Reporting:
    """Decides from the store's last answers, and keeps them up to date.

    Args:
        send: asks the store in a call of its own.
        give_back: returns something to the store.
        clock: this process's time.
        calendar_clock: the time of day, for calendar windows.
        gateways: returns how many decide on the same keys, this one included.
    """

    def __init__(
        self,
        send: Send,
        give_back: GiveBack,
        clock: Clock,
        calendar_clock: Clock,
        gateways: Callable[[], int],
    ) -> None:
        self._state = EventualState(clock, calendar_clock, gateways)
        self._send = send
        self._give_back = give_back
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._is_leaving: set[int] = set()
        self._next_probes: asyncio.Handle | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return repr(self._state)

    def decide(self, limit: Limit, key: str, terms: Eventual, cost: int) -> Decision:
        """Decide on one request immediately."""
        decision = self._state.decide(limit, key, terms, cost)
        if not self._is_closed:
            self._report_later(terms.interval_us)
            if self._next_probes is None and self._state.has_probes:
                self._next_probes = self._loop.call_soon(self._send_probes)
        return decision

    def undo(self, limit: Limit, key: str, terms: Eventual, cost: int, decision: Decision) -> None:
        """Take back an admission; one that was reported already stays reported."""
        self._state.undo(limit, key, terms, cost, decision)

    def _report_later(self, interval_us: int) -> None:
        is_under_way = interval_us in self._timers or interval_us in self._is_leaving
        if not is_under_way and self._state.is_due(interval_us):
            self._timers[interval_us] = self._loop.call_later(
                interval_us / US, self._report, interval_us
            )

    def _report(self, interval_us: int) -> None:
        """Report what was admitted in an interval that has ended."""
        self._timers.pop(interval_us, None)
        self._state.gather(interval_us)
        if interval_us not in self._is_leaving:
            self._is_leaving.add(interval_us)
            self._report_some(interval_us)

    def _report_some(self, interval_us: int) -> None:
        asks: list[Pending] = []
        call = _ReportCall(self, interval_us, self._clock() - interval_us)
        for report in self._state.reports(interval_us, REPORTS_A_CALL):
            asks += [_ReportedAsk(self._state, report.limit, ask, call) for ask in report.asks]
        call.unanswered = len(asks)
        if asks:
            self._send(asks)
        else:
            self._is_leaving.discard(interval_us)
            if not self._is_closed:
                self._report_later(interval_us)

    def answered(self, interval_us: int, *, is_lost: bool) -> None:
        """Send the next call of reports, after one was answered or lost."""
        if not is_lost:
            self._report_some(interval_us)
        elif not self._is_closed:
            # In another turn of the loop, or each lost call would nest one level deeper.
            self._loop.call_soon(self._report_some, interval_us)

    def _send_probes(self) -> None:
        self._next_probes = None
        probes = self._state.take_probes(PROBES_PER_CALL)
        if probes:
            self._next_probes = self._loop.call_later(PROBE_PAUSE_S, self._send_probes)
            self._send([_ProbeCall(self, probe) for probe in probes])

    def probe_answered(self, probe: Probe, outcome: Outcome) -> None:
        """Process the store's answer to a probe."""
        (decision,) = outcome.verdict.decisions
        if probe.cost and decision.allowed:
            self._give_back(outcome.ask, outcome.verdict)
        self._state.probe_answered(probe, decision)

    def probe_failed(self, probe: Probe) -> None:
        """Note that the store has not answered a probe."""
        self._state.probe_failed(probe)

    def close(self) -> None:
        """Report what has not been reported, one call after the other."""
        self._is_closed = True
        if self._next_probes is not None:
            self._next_probes.cancel()
        for interval_us, timer in list(self._timers.items()):
            timer.cancel()
            self._report(interval_us)
        for interval_us in list(self._is_leaving):
            self._state.gather(interval_us)


class _ReportCall:
    """The reports of one call."""

    __slots__ = ("_interval_us", "_reporting", "gathered_us", "unanswered")

    def __init__(self, reporting: Reporting, interval_us: int, gathered_us: int) -> None:
        self._reporting = reporting
        self._interval_us = interval_us
        self.gathered_us = gathered_us
        self.unanswered = 0

    def answered(self, *, is_lost: bool) -> None:
        """Note that one more of them was answered or lost."""
        self.unanswered -= 1
        if not self.unanswered:
            self._reporting.answered(self._interval_us, is_lost=is_lost)


class _ReportedAsk(Pending):
    """A piece of a report, which no request waits for."""

    __slots__ = ("_call", "_limit", "_state")

    def __init__(self, state: EventualState, limit: Limit, ask: Ask, call: _ReportCall) -> None:
        super().__init__(ask, ())
        self._state = state
        self._limit = limit
        self._call = call

    def resolve(self, outcome: Outcome) -> None:
        """Process the store's answer, which has the remainder."""
        (decision,) = outcome.verdict.decisions
        self._state.reported(self._limit, self.ask, self._call.gathered_us, decision)
        self._call.answered(is_lost=False)

    def lost(self, decide_alone: DecideAlone) -> Outcome | None:
        """Drop the report, which may or may not have been counted: fail open."""
        self._call.answered(is_lost=True)
        return None


class _ProbeCall(Pending):
    """A probe of a key; no request waits for it."""

    __slots__ = ("_probe", "_reporting")

    def __init__(self, reporting: Reporting, probe: Probe) -> None:
        super().__init__(probe_ask(probe.limit, probe.key, probe.cost), ())
        self._reporting = reporting
        self._probe = probe

    def resolve(self, outcome: Outcome) -> None:
        """Process the store's answer: the remainder, or when there is more."""
        self._reporting.probe_answered(self._probe, outcome)

    def lost(self, decide_alone: DecideAlone) -> Outcome | None:
        """Note that the store did not answer."""
        self._reporting.probe_failed(self._probe)
        return None
