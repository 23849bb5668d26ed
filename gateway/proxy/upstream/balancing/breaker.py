"""The circuit breaker of an upstream: after too many failures, nothing is sent for a while.

It looks at the share of requests that failed in a sliding window, since an upstream under load
has single failures all the time; `gateway.base.breaker` counts consecutive failures, which suits
a store that answers either always or never. States, and the transitions between them::

    CLOSED     the share of failures is reached, among enough requests   OPEN
    OPEN       the time is over                                          HALF_OPEN
        HALF_OPEN  the given number of trials succeeded                      CLOSED
                   one failed                                                OPEN
                   no outcome for as long as it was open                     HALF_OPEN, new trials

A request that is admitted has a ticket, with which its outcome is reported. A ticket belongs to
one state: a request sent before the breaker opened does not count in the trials after it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from gateway.base.breaker import BreakerState

NO_TICKET: Final = -1
PIECES: Final = 10
"""The window advances by this part of its length."""


class BreakerNumbers(NamedTuple):
    """When a breaker opens, and for how long.

    Attributes:
        parts: the share of failures that opens it, in parts of `whole`.
        whole: what `parts` is a part of.
        min_requests: how many requests the window must hold before it opens.
        window_us: length of the window, in microseconds.
        open_us: how long it stays open, in microseconds.
        trials: requests that are admitted afterwards, and must all succeed.
    """

    parts: int
    whole: int
    min_requests: int
    window_us: int
    open_us: int
    trials: int


class WindowBreaker:
    """Decides whether requests may be sent to an upstream.

    Args:
        numbers: when it opens, and for how long.

    Attributes:
        state: as of the last method call: time alone does not change it.
        changed_us: when it entered this state; 0 if it was never in another.
    """

    __slots__ = (
        "_admitted",
        "_failures",
        "_generation",
        "_min_requests",
        "_open_us",
        "_parts",
        "_piece_us",
        "_pieces",
        "_requests",
        "_succeeded",
        "_trials",
        "_until_us",
        "_whole",
        "changed_us",
        "state",
    )

    def __init__(self, numbers: BreakerNumbers) -> None:
        self._parts = numbers.parts
        self._whole = numbers.whole
        self._min_requests = numbers.min_requests
        self._piece_us = max(1, numbers.window_us // PIECES)
        self._open_us = numbers.open_us
        self._trials = numbers.trials
        self._pieces: deque[list[int]] = deque()
        self._requests = 0
        self._failures = 0
        self._generation = 0
        self._until_us = 0
        self._admitted = 0
        self._succeeded = 0
        self.state = BreakerState.CLOSED
        self.changed_us = 0

    def __repr__(self) -> str:
        return f"<WindowBreaker {self.state.value}, {self._failures} of {self._requests} failed>"

    def admit(self, now_us: int) -> int:
        """Return the ticket of a request that may be sent; `NO_TICKET` if it must not be."""
        if self.state is BreakerState.CLOSED:
            return self._generation
        if now_us >= self._until_us:
            # The open time is over; or the trials had no outcome for as long.
            self._enter(BreakerState.HALF_OPEN, now_us)
        if self.state is BreakerState.OPEN or self._admitted >= self._trials:
            return NO_TICKET
        self._admitted += 1
        return self._generation

    def retry_after_us(self, now_us: int) -> int:
        """Return the microseconds until a request may pass again; 0 if unknown."""
        return max(0, self._until_us - now_us) if self.state is BreakerState.OPEN else 0

    def report(self, ticket: int, now_us: int, *, is_failure: bool | None) -> bool:
        """Record the outcome of a request; return whether the state changed.

        Args:
            ticket: the ticket of the request.
            now_us: the current time.
            is_failure: None if the outcome is unknown.
        """
        if ticket != self._generation:
            return False
        before = self.state
        if before is BreakerState.CLOSED:
            if is_failure is not None:
                self._count(now_us, is_failure=is_failure)
        elif is_failure is None:
            self._admitted -= 1
        elif is_failure:
            self._enter(BreakerState.OPEN, now_us)
        else:
            self._succeeded += 1
            if self._succeeded >= self._trials:
                self._enter(BreakerState.CLOSED, now_us)
        return self.state is not before

    def _count(self, now_us: int, *, is_failure: bool) -> None:
        slot = now_us // self._piece_us
        pieces = self._pieces
        if not pieces or pieces[-1][0] != slot:
            pieces.append([slot, 0, 0])
            while pieces[0][0] <= slot - PIECES:
                _, requests, failures = pieces.popleft()
                self._requests -= requests
                self._failures -= failures
        pieces[-1][1] += 1
        self._requests += 1
        if not is_failure:
            return
        pieces[-1][2] += 1
        self._failures += 1
        is_enough = self._requests >= self._min_requests
        if is_enough and self._failures * self._whole >= self._requests * self._parts:
            self._enter(BreakerState.OPEN, now_us)

    def _enter(self, state: BreakerState, now_us: int) -> None:
        self.state = state
        self.changed_us = now_us
        self._generation += 1
        self._until_us = now_us + self._open_us
        self._admitted = 0
        self._succeeded = 0
        self._pieces.clear()
        self._requests = 0
        self._failures = 0
