"""The attempts of one request: which were made, whether another may follow, and the deadline.

Created when a request on a route with retries fails for the first time, or has to wait anyway.
The rules are in `upstream/retry.py`.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gateway.base.errors import UpstreamError, UpstreamTimeout, UpstreamUnprocessedError

if TYPE_CHECKING:
    from gateway.proxy.upstream.answer_reader import AnswerReader
    from gateway.proxy.upstream.pool import TargetPool
    from gateway.proxy.upstream.retry import RetryRule
    from gateway.proxy.upstream.targets import Upstream


class Attempts:
    """The attempts of one request.

    Args:
        rule: what may be retried.
        upstream: where the request goes.
        method: of the request.
        due: the loop's time at which all attempts must be over; `inf` for never.

    Attributes:
        due: as given.
        tried: the targets of the attempts so far.
    """

    __slots__ = ("_method", "_names", "_rule", "_upstream", "due", "tried")

    def __init__(self, rule: RetryRule, upstream: Upstream, method: str, due: float) -> None:
        self._rule = rule
        self._upstream = upstream
        self._method = method
        self._names = ""
        self.due = due
        self.tried: list[TargetPool] = []

    def may_follow(
        self,
        pool: TargetPool,
        outcome: int | UpstreamError,
        answer: AnswerReader | None,
        *,
        is_kept: bool,
    ) -> bool:
        """Return whether another attempt may follow the one at `pool`; count it if so.

        Args:
            pool: the target of the attempt.
            outcome: the status of its response, none of which has been sent to the client, or why
                there is no response.
            answer: what has arrived of the response; None if the request was not sent.
            is_kept: whether the body of the request can be sent again.
        """
        rule = self._rule
        reason = rule.reason(outcome, self._method)
        if isinstance(outcome, UpstreamUnprocessedError):
            if not is_kept:
                return False
        elif reason == "connect":
            self._upstream.budget.unsent += 1
        elif reason and not (is_kept and _is_unseen(outcome, answer)):
            return False
        self.tried.append(pool)
        if not reason or len(self.tried) >= rule.tries:
            return False
        if self._is_out_of_targets and _says_when(outcome, answer):
            return False
        if self._upstream.may_retry(rule, reason):
            self._names = f"{self._names}{pool.name},"
            return True
        return False

    def named(self, pool: TargetPool) -> str:
        """Return all targets so far, in order, including the next one, for the log."""
        return f"{self._names}{pool.name}"

    def pause_s(self, now_s: float) -> float | None:
        """Return how long to wait before the next attempt; None while there are untried targets.

        Args:
            now_s: the loop's time.

        Raises:
            UpstreamTimeout: no time is left for another attempt.
        """
        if not self._is_out_of_targets:
            return None
        pause_s = self._rule.backoff_s(len(self.tried) - 1, random.random())  # noqa: S311
        if now_s + pause_s >= self.due:
            raise UpstreamTimeout("total")
        return pause_s

    @property
    def is_last(self) -> bool:
        """Return whether no other attempt may follow the present one."""
        return len(self.tried) + 1 >= self._rule.tries

    @property
    def _is_out_of_targets(self) -> bool:
        return len(self.tried) >= len(self._upstream.pools)


def _is_unseen(outcome: int | UpstreamError, answer: AnswerReader | None) -> bool:
    """Return whether no part of the response was passed on and no partial response was received."""
    if answer is None:
        return True
    return not (answer.had_interim if isinstance(outcome, int) else answer.has_begun)


def _says_when(outcome: int | UpstreamError, answer: AnswerReader | None) -> bool:
    """Return whether the response has a `Retry-After` field."""
    if answer is None or not isinstance(outcome, int):
        return False
    fields = answer.head.fields.lower()
    return fields.startswith(b"retry-after:") or b"\nretry-after:" in fields
