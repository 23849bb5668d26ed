"""Whether another try may follow one that failed: decisions only.

A request is sent again only if that cannot do twice what was requested once (RFC 9110,
section 9.2.2), and never so often that retries make an outage worse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.base.clock import US
from gateway.base.errors import (
    UpstreamClosedError,
    UpstreamConnectError,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnprocessedError,
)
from gateway.limits.consistency_mode import PARTS_PER_WHOLE

SLOTS: Final = 10
SLOT_US: Final = US
COUNT_BITS: Final = 24
COUNT_MOST: Final = (1 << COUNT_BITS) - 1
GRPC_OUTCOMES: Final = 1000
"""Added to the status of a call of gRPC, as the outcome of an attempt: those of HTTP are below."""
IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that may be sent again (RFC 9110, section 9.2.2)."""


@dataclass(frozen=True, slots=True)
class RetryRule:
    """What may be retried, and how.

    Attributes:
        tries: most times a request is sent, including the first.
        failures: those of `connect`, `reset` and `timeout` that are retried.
        statuses: of answers that are retried.
        methods: those that may be sent again; None for any.
        timeout_s: until the first byte of an answer, in seconds; None for the upstream's own.
        backoff_us, max_backoff_us: the longest first pause, and the longest of all.
        share: most retries as a share of all requests, in `PARTS_PER_WHOLE`.
        floor: retries in ten seconds that are allowed in any case.
        max_body: most bytes of a request's body that may be sent again.
    """

    tries: int
    failures: frozenset[str]
    statuses: frozenset[int]
    methods: frozenset[str] | None
    timeout_s: float | None
    backoff_us: int
    max_backoff_us: int
    share: int
    floor: int
    max_body: int

    def reason(self, outcome: int | UpstreamError, method: str) -> str:
        """Return why another try may follow; empty if it may not.

        Args:
            outcome: the status of its answer, or why there is none.
            method: of the request.

        Returns:
            `connect` if nothing was sent, or nothing was done with it; otherwise `reset`, `timeout`
            or `status`.
        """
        if isinstance(outcome, int):
            reason = "status" if outcome in self.statuses else ""
        else:
            reason = _failure(outcome)
            reason = reason if reason in self.failures else ""
        if reason == "connect" or self.methods is None or method in self.methods:
            return reason
        if isinstance(outcome, int) and outcome >= GRPC_OUTCOMES:
            # All calls of gRPC are POST; who names its statuses knows which may be repeated.
            return reason
        return ""

    def backoff_s(self, retries: int, part: float) -> float:
        """Return how long to wait before retrying a target that was tried before.

        Args:
            retries: how many retries there were, from 0.
            part: a random number from 0 to 1, by which the whole pause is multiplied ("full
                jitter"), so that requests that failed together do not come back together.
        """
        return float(min(self.max_backoff_us, self.backoff_us << retries)) * part / US


def _failure(error: UpstreamError) -> str:
    if isinstance(error, UpstreamConnectError | UpstreamUnprocessedError):
        return "connect"
    if isinstance(error, UpstreamClosedError):
        return "reset"
    if isinstance(error, UpstreamTimeout):
        return {"connect": "connect", "first_byte": "timeout"}.get(error.phase, "")
    return ""


class RetryBudget:
    """The retries of one upstream: at most a share of the requests of the last ten seconds.

    Requests are counted elsewhere, and read only when a retry is wanted: those since the last
    look are assumed to have arrived evenly.

    Attributes:
        unsent: tries without a connection, which are not among the requests that were sent.
    """

    __slots__ = ("_requests", "_retries", "_seen", "_slot", "unsent")

    def __init__(self) -> None:
        self._requests = [0] * SLOTS
        self._retries = [0] * SLOTS
        self._slot = 0
        self._seen = 0
        self.unsent = 0

    def spend(self, now_us: int, requests: int, share: int, floor: int, elsewhere: int = 0) -> bool:
        """Return whether one more retry is allowed; count it if so.

        Args:
            now_us: the time, in microseconds.
            requests: how many there were since the beginning, without retries.
            share: most retries as a share of the requests, in `PARTS_PER_WHOLE`.
            floor: how many are allowed in any case, in all workers together.
            elsewhere: how many retries other workers have had, as `retries_of` returns it.
        """
        self._advance(now_us // SLOT_US, requests)
        allowed = sum(self._requests) * share // PARTS_PER_WHOLE
        retries = sum(self._retries)
        if retries >= allowed and retries + elsewhere >= floor:
            return False
        self._retries[self._slot % SLOTS] += 1
        return True

    @property
    def record(self) -> int:
        """Return the retries of the last ten seconds and when that was, as one number."""
        return self._slot << COUNT_BITS | min(sum(self._retries), COUNT_MOST)

    def _advance(self, slot: int, requests: int) -> None:
        passed = max(slot - self._slot, 0)
        came = max(requests - self._seen, 0)
        self._seen = requests
        if passed == 0:
            self._requests[self._slot % SLOTS] += came
            return
        for step in range(1, min(passed, SLOTS) + 1):
            place = (slot - min(passed, SLOTS) + step) % SLOTS
            self._requests[place] = came // passed
            self._retries[place] = 0
        # The remainder of the division came last.
        self._requests[slot % SLOTS] += came % passed if passed <= SLOTS else 0
        self._slot = slot


def retries_of(records: Iterable[int], now_us: int) -> int:
    """Return how many retries other workers have had in the last ten seconds.

    A record is as of the last retry of that worker, so some of its retries may be older: then there
    is one retry less than there could be, and never one more.
    """
    oldest = now_us // SLOT_US - SLOTS
    return sum(record & COUNT_MOST for record in records if record >> COUNT_BITS > oldest)
