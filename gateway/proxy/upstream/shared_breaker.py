"""The circuit breaker of an upstream, which all workers of a gateway share.

Each worker has a breaker of its own, and keeps its last change on the board. The newest change is
that of all: if one worker's breaker opens, all are open. The worker that gets the first request
after that is half open and sends the trials; for the others, the breaker stays open until it is
known how they went, or, if they have no outcome, for as long again.
"""

from __future__ import annotations

from typing import Final

from gateway.base.breaker import BreakerState
from gateway.board.board import Seat
from gateway.proxy.upstream.balancing import NO_TICKET, BreakerNumbers, WindowBreaker

STATES: Final = (BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN)
"""In the order of their numbers on the board."""
BITS: Final = 2


class SharedBreaker(WindowBreaker):
    """A `WindowBreaker` that takes over what other workers know.

    Args:
        numbers: as there.
        seat: the place of this worker at the board.
        name: of the breaker there; one with other numbers has another name.
        now_us: the current time. An open breaker whose time is over by then is taken for a closed
            one: a reload may have ended it long ago.
    """

    __slots__ = ("_seat", "_spot")

    def __init__(self, numbers: BreakerNumbers, seat: Seat, name: str, now_us: int) -> None:
        super().__init__(numbers)
        self._seat = seat
        self._spot = seat.spot(name)
        self.learn()
        if self.changed_us + numbers.open_us <= now_us and self.state is BreakerState.OPEN:
            self._take_over(BreakerState.CLOSED, self.changed_us)

    def admit(self, now_us: int) -> int:
        """Return the ticket of a request; only one worker has tickets for trials."""
        if self.state is BreakerState.CLOSED:
            return self._generation
        self.learn()
        known_us = self.changed_us
        ticket = super().admit(now_us)
        if self.state is BreakerState.HALF_OPEN and self.changed_us > known_us:
            # Another may have begun at the same moment; then the first of them goes on.
            rivals = [at_us for at_us, state in self._others() if state is BreakerState.HALF_OPEN]
            earlier = [at_us for at_us in rivals if known_us < at_us < self.changed_us]
            if earlier:
                self._take_over(BreakerState.OPEN, max(earlier))
                return NO_TICKET
        return ticket

    def learn(self) -> bool:
        """Take over the newest change of any worker; return whether there was one."""
        at_us, state = max(self._others(), default=(0, BreakerState.CLOSED), key=lambda one: one[0])
        if at_us <= self.changed_us:
            return False
        is_closed = state is BreakerState.CLOSED
        self._take_over(BreakerState.CLOSED if is_closed else BreakerState.OPEN, at_us)
        return True

    def _others(self) -> list[tuple[int, BreakerState]]:
        mask = (1 << BITS) - 1
        found = self._seat.others(self._spot)
        return [(number >> BITS, STATES[number & mask]) for number in found]

    def _take_over(self, state: BreakerState, at_us: int) -> None:
        super()._enter(state, at_us)
        self._show()

    def _enter(self, state: BreakerState, now_us: int) -> None:
        super()._enter(state, now_us)
        self._show()
        self._seat.ring_others()

    def _show(self) -> None:
        """Let other workers see it, also those that start when the first one has ended."""
        self._seat.write(self._spot, self.changed_us << BITS | STATES.index(self.state))
