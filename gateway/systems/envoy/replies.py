"""The answer to Envoy about a request that was decided completely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

from gateway.base.clock import US, Clock, wall_us
from gateway.http import answer
from gateway.http.answer import seconds_up
from gateway.http.limit_fields import LimitFields
from gateway.limiter.decider import Outcome
from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits import fixed_window
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.systems.envoy.asking import Decided, is_passing
from gateway.systems.envoy.config import EnvoyHeaders, EnvoyRlsConfig
from gateway.systems.envoy.messages import (
    OK,
    OVER_LIMIT,
    UNITS,
    Descriptor,
    DescriptorStatus,
    EnvoyStatus,
    Reply,
)
from gateway.systems.envoy.plan import CallPlan, Group, PlanPart

_FREE: Final = EnvoyStatus(OK)
_NEVER: Final = Verdict(False, 0, NEVER, ())


class Replies:
    """Creates the replies of one listener.

    Args:
        config: what Envoy is sent.
        clock: the time of day, for the ends of windows.
    """

    def __init__(self, config: EnvoyRlsConfig, clock: Clock = wall_us) -> None:
        self._config = config
        self._clock = clock
        self._tells_more = config.headers != "none" or config.body != "none"

    def reply(self, decided: Decided) -> Reply:
        """Return the reply to a request."""
        config = self._config
        seen: list[DescriptorResult] = []
        statuses = _statuses(decided, seen, self._clock)
        code = OVER_LIMIT if decided.is_refused and not config.shadow else OK
        metadata = _metadata(decided.plan, statuses) if config.dynamic_metadata else None
        if not self._tells_more:
            return Reply(code, statuses, metadata=metadata)
        said = _ReplyContent(decided, statuses, seen)
        headers: list[tuple[str, str]] = []
        body = b""
        if config.headers != "none":
            headers = list(said.headers(config))
        if code == OVER_LIMIT and config.body != "none" and said.refusing is not None:
            refusal = answer.refusal(said.refusing, said.verdict)
            body = refusal.body
            headers += [pair for pair in _pairs(refusal.fields) if pair[0] == "Content-Type"]
        return Reply(code, statuses, headers, body, metadata)


class DescriptorResult(NamedTuple):
    """The result of a descriptor that counts in the answer.

    Attributes:
        part: the descriptor.
        status: its status in the reply.
        decisions: of its limits, in order; None where nothing decided.
    """

    part: PlanPart
    status: EnvoyStatus
    decisions: Sequence[Decision | None]


def _statuses(
    decided: Decided, seen: list[DescriptorResult], clock: Clock
) -> Sequence[EnvoyStatus]:
    """Return the status of each descriptor; add those that count in the answer to `seen`."""
    plan = decided.plan
    statuses = list(plan.statuses)
    for place, (group, outcome) in enumerate(zip(plan.groups, decided.outcomes, strict=True)):
        back = decided.refunds.get(place, 0)
        is_refused = decided.is_refused and not group.is_shadow
        if not group.is_debit and (is_refused or not is_passing(outcome)):
            # It was never taken, or has been given back.
            back = group.ask.cost
        decisions = _decisions(group, outcome)
        # An exceeded quota does not say when a request that passes would pass.
        is_heard = not group.is_quota or decided.is_refused or is_passing(outcome)
        begin = 0
        for part in group.parts:
            end = begin + len(part.names)
            own = decisions[begin:end]
            if back:
                own = [_given_back(one, back) for one in own]
            begin = end
            statuses[part.place] = status = _status(part, own, outcome, clock)
            if not group.is_shadow and is_heard:
                seen.append(DescriptorResult(part, status, own))
    return statuses


def _decisions(group: Group, outcome: Outcome) -> Sequence[Decision | None]:
    """Return the decision of each limit of a group; None where there is none.

    A policy that fails open decides nothing while the store is unavailable, and one that fails
    closed leaves the others nothing to decide.
    """
    if outcome.rules is group.rules:
        return outcome.verdict.decisions
    if outcome.closed_by is not None:
        return [None] * len(group.rules)
    ask, verdict = outcome.ask, outcome.verdict
    named = zip(ask.limits, ask.keys, verdict.decisions, strict=False)
    known = {(limit.scope, key): decision for limit, key, decision in named}
    return [known.get(name) for part in group.parts for name in part.names]


class _ReplyContent:
    """The content of a reply besides its statuses.

    Attributes:
        refusing: the policy that refused it, if one did.
        verdict: the answers of all limits that are enforced.
    """

    __slots__ = ("_rules", "_statuses", "refusing", "verdict")

    def __init__(
        self, decided: Decided, statuses: Sequence[EnvoyStatus], seen: Sequence[DescriptorResult]
    ) -> None:
        self._statuses = statuses
        self.refusing: CompiledPolicy | None = None
        for held in decided.plan.held:
            if held is not None and held.is_refused and not held.is_shadow:
                self.refusing = self.refusing or held.policy
        self._rules: list[Rule] = []
        decisions: list[Decision] = []
        for part, status, own in seen:
            if status.code == OVER_LIMIT:
                self.refusing = self.refusing or part.held.policy
            for rule, decision in zip(part.held.rules, own, strict=True):
                if decision is not None:
                    self._rules.append(rule)
                    decisions.append(decision)
        self.verdict = _NEVER if decided.plan.is_refused else combine(decisions)

    def headers(self, config: EnvoyRlsConfig) -> Iterator[tuple[str, str]]:
        """Return the fields that tell the client how much is left."""
        if config.headers == "envoy":
            yield from _rate_limit_headers(self._statuses, config.header_names)
        elif self._rules and self.verdict.decisions:
            yield from _pairs(LimitFields(self._rules).lines(self._rules, self.verdict))
        retry_after_us = self.verdict.retry_after_us
        if retry_after_us > 0 and not config.header_names.has("retry-after"):
            yield "Retry-After", str(seconds_up(retry_after_us))


def _given_back(decision: Decision | None, hits: int) -> Decision | None:
    if decision is None or not hits or not decision.allowed:
        return decision
    return decision._replace(remaining=min(decision.remaining + hits, decision.limit))


def _status(
    part: PlanPart, decisions: Sequence[Decision | None], outcome: Outcome, clock: Clock
) -> EnvoyStatus:
    held = part.held
    over = OK if held.is_shadow else OVER_LIMIT
    if outcome.closed_by is not None:
        return EnvoyStatus(over, held.reported[0])
    reported, limit = held.reported[0], held.limits[0]
    decision = decisions[0]
    if len(decisions) > 1:
        known = [
            (decision, reported, limit)
            for decision, reported, limit in zip(decisions, held.reported, held.limits, strict=True)
            if decision is not None
        ]
        if known:
            decision, reported, limit = min(known, key=_tightest)
    if decision is None:
        return _FREE  # The store is unavailable, and the policy fails open.
    if decision.allowed:
        return EnvoyStatus(OK, reported, decision.remaining, -(-decision.reset_us // US))
    retry_after_us = decision.retry_after_us
    if retry_after_us == NEVER:
        retry_after_us = _whole_us(decision, limit, clock)
    return EnvoyStatus(over, reported, decision.remaining, seconds_up(retry_after_us))


def _whole_us(decision: Decision, limit: Limit, clock: Clock) -> int:
    """Return the time to report instead of never: when a full limit is or would be available."""
    if limit.algorithm == "fixed_window":
        now_us = clock()
        return fixed_window.bounds(now_us, limit)[1] - now_us
    return decision.reset_us or limit.period_us


def _tightest(known: tuple[Decision, DescriptorStatus, Limit]) -> tuple[bool, int, int]:
    """Return the sort key of the tightest limit: refusals first, the longest of them first."""
    decision = known[0]
    if decision.allowed:
        return True, decision.remaining, 0
    if decision.retry_after_us == NEVER:
        return False, 0, 0
    return False, 1, -decision.retry_after_us


def _rate_limit_headers(
    statuses: Iterable[EnvoyStatus], names: EnvoyHeaders
) -> Iterator[tuple[str, str]]:
    """Return the fields that Envoy's own service sends, about the tightest limit."""
    known = [status for status in statuses if status.limit is not None]
    if not known:
        return
    status = min(known, key=lambda one: (one.code != OVER_LIMIT, one.remaining))
    assert status.limit is not None
    yield names.limit, str(status.limit.requests)
    yield names.remaining, str(status.remaining)
    if status.reset_s is not None:
        yield names.reset, str(status.reset_s)


def _pairs(lines: bytes) -> Iterator[tuple[str, str]]:
    for line in lines.decode("ascii").splitlines():
        name, _, value = line.partition(": ")
        yield name, value


def _metadata(plan: CallPlan, statuses: Sequence[EnvoyStatus]) -> Mapping[str, Any]:
    """Return the request and its rules' metadata in the form of Envoy's own service."""
    question = plan.question
    reported: dict[str, Any] = {
        "domain": question.domain,
        "descriptors": [_described(descriptor) for descriptor in question.descriptors],
    }
    if question.hits:
        reported["hitsAddend"] = question.hits
    said: dict[str, Any] = {}
    for held, status in zip(plan.held, statuses, strict=True):
        if held is not None and status.code == OK:
            _add(said, held.metadata)
    if said:
        reported["metadata"] = said
    return reported


def _add(said: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add missing entries; of two values for a key, the first is kept, but mappings are merged."""
    for key, value in more.items():
        known = said.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _add(known, value)
        elif key not in said:
            said[key] = deepcopy(value)


def _described(descriptor: Descriptor) -> dict[str, Any]:
    reported: dict[str, Any] = {"entries": [f"{key}={value}" for key, value in descriptor.entries]}
    if descriptor.override is not None:
        requests, unit = descriptor.override
        word = UNITS[unit] if 0 <= unit < len(UNITS) else unit
        reported["limit"] = f"requests_per_unit:{requests} unit:{word}"
    if descriptor.hits is not None:
        reported["hitsAddend"] = descriptor.hits
    return reported
