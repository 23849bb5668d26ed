"""The decision on a request, in Python's units: seconds instead of microseconds."""

from __future__ import annotations

from gateway.base.clock import US
from gateway.base.errors import GatewayError
from gateway.http.answer import retry_after_s
from gateway.http.limit_fields import LimitFields
from gateway.limiter.decider import Outcome, refusing_rule
from gateway.limiter.plan import Rule
from gateway.limits.decision import NEVER
from gateway.limits.decision import Decision as LimitDecision


class Decision:
    """Whether a request is admitted, and what remains for the next one.

    True in a condition if it is. With several limits, `policy`, `limit`, `remaining` and
    `reset_after` are those of the tightest one.
    """

    __slots__ = ("_is_given_back", "_said")

    def __init__(self, outcome: Outcome) -> None:
        self._said = outcome
        self._is_given_back = False

    def __bool__(self) -> bool:
        return self._outcome.verdict.allowed

    def __repr__(self) -> str:
        if self.allowed:
            return f"<Decision allowed, {self.remaining} of {self.limit} remaining>"
        if self.retry_after is None:
            return f"<Decision refused by {self.policy}, for ever>"
        return f"<Decision refused by {self.policy}, retry after {self.retry_after:.6g} s>"

    @property
    def allowed(self) -> bool:
        """Whether the request is admitted. If so, it was counted."""
        return self._outcome.verdict.allowed

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request would be admitted, without other requests in between.

        0 if it was admitted; None if it never can be, because it costs more than the limit.
        """
        retry_after_us = self._outcome.verdict.retry_after_us
        return None if retry_after_us == NEVER else retry_after_us / US

    @property
    def policy(self) -> str:
        """The policy that refused the request, otherwise the one with the least left."""
        if self._outcome.closed_by is not None:
            return self._outcome.closed_by.name
        tightest = self._tightest
        return tightest[0].policy.name if tightest else ""

    @property
    def limit(self) -> int | None:
        """How many requests may pass back-to-back; None if no limit decided (`decided_alone`)."""
        tightest = self._tightest
        return tightest[1].limit if tightest else None

    @property
    def remaining(self) -> int | None:
        """How many requests of cost 1 could pass now, after this one; None likewise."""
        tightest = self._tightest
        return tightest[1].remaining if tightest else None

    @property
    def reset_after(self) -> float | None:
        """Seconds until the limit is completely unused again; None likewise."""
        tightest = self._tightest
        return tightest[1].reset_us / US if tightest else None

    @property
    def decided_alone(self) -> bool:
        """Whether the store was unavailable, so that `on_store_error` applied.

        With `local`, a share of the limit decided. With `open` the request is admitted and with
        `closed` refused, both without numbers.
        """
        return self._outcome.alone

    @property
    def headers(self) -> dict[str, str]:
        """Fields for an HTTP response, as the gateway sends them.

        `RateLimit-Policy`, `RateLimit` and `X-RateLimit-*` according to the policies, and
        `Retry-After` on a refusal.
        """
        rules, verdict = self._outcome.rules, self._outcome.verdict
        lines = b""
        if rules:
            lines = LimitFields(rules).lines(rules, verdict)
        fields = dict(split_fields(lines))
        if not verdict.allowed and (seconds := retry_after_s(verdict)) is not None:
            fields["Retry-After"] = str(seconds)
        return fields

    @property
    def _outcome(self) -> Outcome:
        return self._said

    @property
    def _tightest(self) -> tuple[Rule, LimitDecision] | None:
        outcome = self._outcome
        if not outcome.rules:
            return None
        pairs = zip(outcome.rules, outcome.verdict.decisions, strict=True)
        if not outcome.verdict.allowed:
            refusing = refusing_rule(outcome)
            return next(pair for pair in pairs if pair[0] is refusing)
        return min(pairs, key=lambda pair: pair[1].remaining)

    def take_outcome(self) -> Outcome | None:
        """The decision to give back; None once that was done."""
        if self._is_given_back:
            return None
        self._is_given_back = True
        return self._outcome


class LimitExceeded(GatewayError):
    """The request is refused, and cannot be admitted within the time that the caller would wait.

    Raised by `Limiter.wait` and by functions under `Limiter.limit`.

    Attributes:
        decision: the refusal.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        policy, retry_after = self.decision.policy, self.decision.retry_after
        if self.decision.decided_alone and self.decision.limit is None:
            return f"policy {policy!r} admits nothing while its store is unavailable"
        if retry_after is None:
            return f"policy {policy!r} can never admit so much at a time"
        return f"policy {policy!r} is exceeded; retry after {retry_after:.6g} s"


def split_fields(lines: bytes) -> list[tuple[str, str]]:
    """Return header lines as names and values."""
    pairs = (line.partition(": ") for line in lines.decode("ascii").splitlines())
    return [(name, value) for name, _, value in pairs]
