"""What Envoy is answered about a request on which everything was decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway import answer
from gateway.answer import US, LimitFields, seconds_up
from gateway.config.frontend_envoy_rls import EnvoyRlsConfig
from gateway.frontends.envoy_rls_asking import Decided
from gateway.frontends.envoy_rls_groups import Group, Part
from gateway.frontends.envoy_rls_rules import Held
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.policy import Policy, Rule
from gateway.protocols.envoy_rls_messages import (
    OK,
    OVER_LIMIT,
    UNITS,
    Descriptor,
    Question,
    Reply,
    Status,
    Told,
)

UNLIMITED: Final = 2**32 - 1
"""What is left where nothing limits."""

_FREE: Final = Status(OK)
_UNLIMITED: Final = Status(OK, remaining=UNLIMITED)
_NEVER: Final = Verdict(False, 0, NEVER, ())


class Replies:
    """Makes the replies of one listener.

    Args:
        config: what Envoy is to be told.
    """

    def __init__(self, config: EnvoyRlsConfig) -> None:
        self._config = config

    def reply(self, question: Question, decided: Decided) -> Reply:
        """The reply to a request."""
        config = self._config
        found = _Found(decided)
        code = OVER_LIMIT if decided.is_refused and not config.shadow else OK
        headers: list[tuple[str, str]] = []
        body = b""
        if config.headers != "none":
            headers = list(found.headers(config.headers))
        if code == OVER_LIMIT and config.body != "none" and found.refusing is not None:
            refusal = answer.refusal(found.refusing, found.verdict)
            body = refusal.body
            headers += [pair for pair in _pairs(refusal.fields) if pair[0] == "Content-Type"]
        metadata = _metadata(question) if config.dynamic_metadata else None
        return Reply(code, found.statuses, headers, body, metadata)


class _Found:
    """What there is to say of a request.

    Attributes:
        statuses: one for each descriptor.
        refusing: the policy that refused it, if one did.
        verdict: the answers of all limits that are enforced, each of `rules`.
    """

    __slots__ = ("refusing", "rules", "statuses", "verdict")

    def __init__(self, decided: Decided) -> None:
        self.statuses: list[Status] = []
        self.refusing: Policy | None = None
        self.rules: list[Rule] = []
        decisions: list[Decision] = []
        is_never = False
        for held in decided.held:
            self.statuses.append(_uncounted(held))
            if held is not None and held.is_refused and not held.is_shadow:
                self.refusing = self.refusing or held.policy
                is_never = True
        for group in decided.groups:
            back = _comes_back(group, decided)
            decided_here = group.decisions()
            for part in group.parts:
                own = [decided_here.get(name) for name in part.names]
                own = [_given_back(one, back) for one in own]
                self.statuses[part.place] = status = _status(part, own, group)
                if group.is_shadow:
                    continue
                if status.code == OVER_LIMIT:
                    self.refusing = self.refusing or part.held.policy
                for rule, decision in zip(part.held.rules, own, strict=True):
                    if decision is not None:
                        self.rules.append(rule)
                        decisions.append(decision)
        self.verdict = _NEVER if is_never else combine(decisions)

    def headers(self, style: str) -> Iterator[tuple[str, str]]:
        """Fields that tell the client how much is left."""
        if style == "envoy":
            yield from _three(self.statuses)
        elif self.rules and self.verdict.decisions:
            yield from _pairs(LimitFields(self.rules).lines(self.rules, self.verdict))
        retry_after_us = self.verdict.retry_after_us
        if retry_after_us > 0:
            yield "Retry-After", str(seconds_up(retry_after_us))


def _uncounted(held: Held | None) -> Status:
    """What is said of a descriptor that no store is asked about."""
    if held is None:
        return _FREE
    if held.is_refused:
        told = held.told[0] if held.told else Told(0, 0, held.name)
        return Status(OK if held.is_shadow else OVER_LIMIT, told)
    return _UNLIMITED


def _comes_back(group: Group, decided: Decided) -> int:
    """How much of what each limit counted is there again, or was never taken."""
    if group.passes and (group.is_shadow or not decided.is_refused):
        return group.refund
    return group.hits


def _given_back(decision: Decision | None, hits: int) -> Decision | None:
    if decision is None or not hits or not decision.allowed:
        return decision
    return decision._replace(remaining=min(decision.remaining + hits, decision.limit))


def _status(part: Part, decisions: Sequence[Decision | None], group: Group) -> Status:
    held = part.held
    over = OK if held.is_shadow else OVER_LIMIT
    if group.outcome is not None and group.outcome.closed_by is not None:
        return Status(over, held.told[0])
    known = [
        (decision, told)
        for decision, told in zip(decisions, held.told, strict=True)
        if decision is not None
    ]
    if not known:
        return _FREE  # The store is away, and the policy open.
    decision, told = min(known, key=_tightest)
    if decision.allowed:
        return Status(OK, told, decision.remaining, -(-decision.reset_us // US))
    retry_after_us = decision.retry_after_us
    reset_s = None if retry_after_us == NEVER else seconds_up(retry_after_us)
    return Status(over, told, 0, reset_s)


def _tightest(known: tuple[Decision, Told]) -> tuple[bool, int, int]:
    """Those that refuse first, of them the one that does so for the longest time."""
    decision = known[0]
    if decision.allowed:
        return True, decision.remaining, 0
    if decision.retry_after_us == NEVER:
        return False, 0, 0
    return False, 1, -decision.retry_after_us


def _three(statuses: Iterable[Status]) -> Iterator[tuple[str, str]]:
    """The fields that Envoy's own service sends, about the tightest limit."""
    known = [status for status in statuses if status.limit is not None]
    if not known:
        return
    status = min(known, key=lambda one: (one.code != OVER_LIMIT, one.remaining))
    assert status.limit is not None
    yield "RateLimit-Limit", str(status.limit.requests)
    yield "RateLimit-Remaining", str(status.remaining)
    if status.reset_s is not None:
        yield "RateLimit-Reset", str(status.reset_s)


def _pairs(lines: bytes) -> Iterator[tuple[str, str]]:
    for line in lines.decode("ascii").splitlines():
        name, _, value = line.partition(": ")
        yield name, value


def _metadata(question: Question) -> Mapping[str, Any]:
    """What was asked, in the form in which Envoy's own service repeats it."""
    told: dict[str, Any] = {
        "domain": question.domain,
        "descriptors": [_described(descriptor) for descriptor in question.descriptors],
    }
    if question.hits:
        told["hitsAddend"] = question.hits
    return told


def _described(descriptor: Descriptor) -> dict[str, Any]:
    told: dict[str, Any] = {"entries": [f"{key}={value}" for key, value in descriptor.entries]}
    if descriptor.override is not None:
        requests, unit = descriptor.override
        word = UNITS[unit] if unit < len(UNITS) else unit
        told["limit"] = f"requests_per_unit:{requests} unit:{word}"
    if descriptor.hits is not None:
        told["hitsAddend"] = descriptor.hits
    return told
