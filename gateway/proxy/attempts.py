"""The tries of one request: what was tried, what may still be, and by when all must end.

Made when a request on a route with retries fails for the first time, or has to wait anyway; the
decisions are those of `retry`.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from aiohttp.streams import EMPTY_PAYLOAD

from gateway.base.clock import US, monotonic_ns
from gateway.base.errors import UpstreamClosedError, UpstreamError, UpstreamTimeout
from gateway.proxy.upstream.retry import IDEMPOTENT

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.proxy.upstream.connection import UpstreamConnection
    from gateway.proxy.upstream.pool import TargetPool, Upstream
    from gateway.proxy.upstream.retry import RetryRule

NS: Final = 1e9


class Attempts:
    """The tries of one request.

    Args:
        request: the request.
        rule: what may be tried again.
        upstream: where it goes.
    """

    __slots__ = ("_due", "_names", "_request", "_rule", "_tried", "_upstream")

    def __init__(self, request: Request, rule: RetryRule, upstream: Upstream) -> None:
        self._request = request
        self._rule = rule
        self._upstream = upstream
        self._tried: list[TargetPool] = []
        self._names = ""
        gone_s = (monotonic_ns() - request.started_ns) / NS - request.wait_us / US
        self._due = asyncio.get_running_loop().time() + upstream.total_s - gone_s

    def may_follow(self, pool: TargetPool, outcome: int | UpstreamError) -> bool:
        """Whether another try may follow the one at `pool`; counts it if so.

        Args:
            pool: where it was.
            outcome: the status of its answer, of which the client has seen nothing yet, or why
                there is none.
        """
        request, rule = self._request, self._rule
        reason = rule.reason(outcome, request.method)
        if reason == "connect":
            self._upstream.budget.unsent += 1
        elif reason and not (self._is_untold(outcome) and self._is_kept()):
            return False
        self._tried.append(pool)
        if not reason or len(self._tried) >= rule.tries or self._is_told_to_wait(outcome):
            return False
        if self._upstream.may_retry(rule, reason):
            self._names = f"{self._names}{pool.name},"
            return True
        return False

    def named(self, pool: TargetPool) -> str:
        """All targets so far, in order, with the next one, for the log."""
        return f"{self._names}{pool.name}"

    async def next_target(self) -> TargetPool:
        """The target of the next try, after a pause where each was tried before.

        Raises:
            UpstreamError: there is none, or no time for it.
        """
        if len(self._tried) >= len(self._upstream.pools):
            pause_s = self._rule.backoff_s(len(self._tried) - 1, random.random())  # noqa: S311
            if asyncio.get_running_loop().time() + pause_s >= self._due:
                raise UpstreamTimeout("total")
            await asyncio.sleep(pause_s)
        return self._upstream.pick(self._request, self._tried)

    async def connect(self, pool: TargetPool) -> UpstreamConnection:
        """A connection, within the time that there is for all tries.

        Raises:
            UpstreamError: it could not be had.
        """
        return await pool.connect(self._due)

    def limit(self, connection: UpstreamConnection) -> None:
        """Set the time limits of a try that has just begun."""
        is_last = len(self._tried) + 1 >= self._rule.tries
        connection.limit(None if is_last else first_byte_s(self._request, self._rule), self._due)

    def _is_untold(self, outcome: int | UpstreamError) -> bool:
        """Whether nothing of an answer was passed on, and no half of one is there."""
        answer = self._request.lent.answer
        if self._request.status:
            return False
        return not (answer.had_interim if isinstance(outcome, int) else answer.has_begun)

    def _is_told_to_wait(self, outcome: int | UpstreamError) -> bool:
        """Whether the answer says when to come back, and there is no target left but such."""
        if not isinstance(outcome, int) or len(self._tried) < len(self._upstream.pools):
            return False
        fields = self._request.lent.answer.head.fields.lower()
        return fields.startswith(b"retry-after:") or b"\nretry-after:" in fields

    def _is_kept(self) -> bool:
        return is_kept(self._request, self._rule)


def is_kept(request: Request, rule: RetryRule) -> bool:
    """Whether the body of a request is here as a whole and may be sent again."""
    if request.payload is EMPTY_PAYLOAD:
        return True
    return request.body is not None and len(request.body) <= rule.max_body


def first_byte_s(request: Request, rule: RetryRule) -> float | None:
    """How long a try has for the first byte of its answer if another may follow, in seconds."""
    if rule.timeout_s is None or not is_kept(request, rule):
        return None
    return rule.timeout_s if rule.methods is None or request.method in rule.methods else None


async def connect(pool: TargetPool, tries: Attempts | None) -> UpstreamConnection:
    """A connection for one try, of which there may be more.

    Raises:
        UpstreamError: it could not be had.
    """
    return await (pool.connect() if tries is None else tries.connect(pool))


def wants_another(request: Request, connection: UpstreamConnection, tries: Attempts | None) -> bool:
    """Whether a request is sent again although there is an answer; that is then thrown away."""
    if tries is None or not tries.may_follow(request.pool, connection.answer.status):
        return False
    connection.read_now()
    return True


def may_repeat(request: Request, connection: UpstreamConnection) -> bool:
    """Whether to send again: the upstream closed an idle connection just as it was used."""
    return (
        isinstance(connection.error, UpstreamClosedError)
        and not connection.answer.has_begun
        and request.method in IDEMPOTENT
    )
