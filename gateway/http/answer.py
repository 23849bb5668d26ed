"""The gateway's own responses, and the fields that it adds to those of upstreams: no I/O.

Problem documents are RFC 9457; the `RateLimit` fields are draft-ietf-httpapi-ratelimit-headers
(`q`, `w`, `r`, `t`), with `X-RateLimit-*` beside them where configured. They repeat nothing that a
client sent, except for its key in responses in ThrottleX's form, which include it by design.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

from gateway.base.clock import US
from gateway.base.errors import UpstreamError
from gateway.limiter.plan import CompiledPolicy, KeyOf, Rule, is_keyed, is_tiered, is_tried
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import NS_PER_US, Limit

_PHRASES: Final = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable"}
"""Names from RFC 9110 that Python before 3.13 lacks."""
_PROBLEM_TYPES: Final = "https://iana.org/assignments/http-problem-types#"


FAR_US: Final = 3_660 * 86_400 * US
"""The longest `Retry-After`, ten years: only limits that never refill take longer
(`limits.throttlex`), and the number of seconds would not fit 32 bits.
"""

PROBLEM_TYPE: Final = b"Content-Type: application/problem+json\r\n"
"""The first fields of every problem document."""


class Answer(NamedTuple):
    """A complete response of the gateway, without what depends on the connection.

    Attributes:
        status: the status code.
        fields: header lines, each with its line end, `Content-Type` among them.
        body: the body; empty for none.
    """

    status: int
    fields: bytes
    body: bytes


NO_FURTHER: Final = Answer(200, b"Cache-Control: no-store\r\n", b"")
"""The response to an OPTIONS request whose `Max-Forwards` ends here (RFC 9110, section 7.6.2)."""


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """Return the status line of a response of the gateway."""
    return f"HTTP/1.1 {status} {_phrase(status)}\r\n".encode("ascii")


def _phrase(status: int) -> str:
    return _PHRASES.get(status) or HTTPStatus(status).phrase


def problem(
    status: int, title: str, *, kind: str = "about:blank", fields: bytes = b"", **members: object
) -> Answer:
    """Return a problem document (RFC 9457).

    Args:
        status: the status code.
        title: constant text.
        kind: the `type` member.
        fields: more header lines, each with its line end.
        members: further members of the document.
    """
    document = {"type": kind, "title": title, "status": status, **members}
    body = json.dumps(document).encode("utf-8") + b"\n"
    return Answer(
        status,
        PROBLEM_TYPE + b"Cache-Control: no-store\r\n" + fields,
        body,
    )


def seconds_up(us: int) -> int:
    """Return whole seconds, rounded up and at least 1: a client that obeys them is not early."""
    return max(1, -(-us // US))


def refusal(policy: CompiledPolicy, verdict: Verdict) -> Answer:
    """Return the response to a request over its limit.

    Args:
        policy: the policy that refused it.
        verdict: for `Retry-After`; left out if the request could never pass.
    """
    return _refusal(policy, retry_after_s(verdict))


def retry_after_s(verdict: Verdict) -> int | None:
    """Return the seconds a refused client should wait; None if waiting does not help."""
    retry_after_us = verdict.retry_after_us
    return (
        None if retry_after_us == NEVER or retry_after_us > FAR_US else seconds_up(retry_after_us)
    )


@lru_cache(maxsize=1024)
def _refusal(policy: CompiledPolicy, retry_after: int | None) -> Answer:
    """Return the response, cached for each second of waiting during a flood of refusals."""
    fields = b""
    members: dict[str, object] = {"violated-policies": [policy.name]}
    if retry_after is not None:
        members["retry-after"] = retry_after
        fields = b"Retry-After: %d\r\n" % retry_after
    if policy.body == "problem":
        kind = "quota-exceeded" if policy.status == 429 else "temporary-reduced-capacity"
        title = "Too many requests" if policy.status == 429 else "Too busy"
        return problem(policy.status, title, kind=_PROBLEM_TYPES + kind, fields=fields, **members)
    fields += b"Cache-Control: no-store\r\n"
    if policy.body == "none":
        return Answer(policy.status, fields, b"")
    text = "Too many requests\n" if policy.body == "text" else policy.body
    return Answer(
        policy.status,
        b"Content-Type: text/plain; charset=utf-8\r\n" + fields,
        text.encode("utf-8"),
    )


def throttlex_refusal(policy: CompiledPolicy, verdict: Verdict, key: str, now_us: int) -> Answer:
    """Return the refusal in ThrottleX's form (its design, section 4).

    Args:
        policy: the policy that refused it.
        verdict: for `Retry-After`.
        key: the key that the client is counted under.
        now_us: microseconds since 1970.
    """
    message = f"Rate limit exceeded for key: {key}"
    return _throttlex(policy.status, message, retry_after_s(verdict), now_us)


def throttlex_closed(retry_after_us: int, now_us: int) -> Answer:
    """Return ThrottleX's response while the store is unavailable and the policy says `closed`."""
    message = "The rate limiter's store is unavailable"
    return _throttlex(503, message, seconds_up(retry_after_us), now_us)


def _throttlex(status: int, message: str, retry_after: int | None, now_us: int) -> Answer:
    fields = b"Content-Type: application/json\r\nCache-Control: no-store\r\n"
    if retry_after is not None:
        fields += b"Retry-After: %d\r\n" % retry_after
    document = {
        "status": status,
        "error": _phrase(status),
        "message": message,
        "timestamp": f"{datetime.fromtimestamp(now_us // US, UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    return Answer(status, fields, json.dumps(document).encode("utf-8") + b"\n")


def closed(retry_after_us: int) -> Answer:
    """Return the response while the store is unavailable and the policy says `closed`."""
    retry_after = seconds_up(retry_after_us)
    return problem(
        503,
        "The rate limiter's store is unavailable",
        kind=_PROBLEM_TYPES + "temporary-reduced-capacity",
        fields=b"Retry-After: %d\r\n" % retry_after,
        **{"retry-after": retry_after},
    )


def failed(error: UpstreamError) -> Answer:
    """Return the response to a request that the upstream failed to answer."""
    if not error.retry_after_us:
        return problem(error.status, error.title, error=error.kind)
    retry_after = seconds_up(error.retry_after_us)
    members: dict[str, object] = {"error": error.kind, "retry-after": retry_after}
    fields = b"Retry-After: %d\r\n" % retry_after
    return problem(error.status, error.title, kind="about:blank", fields=fields, **members)


def limit_fields(rules: Sequence[Rule]) -> LimitFields | None:
    """Return what makes the lines of a route; None if none of its limits is ever enforced."""
    shown = [rule for rule in rules if rule.policy.enforced_parts]
    return LimitFields(rules if len(shown) == len(rules) else shown) if shown else None


class LimitFields:
    """Makes the `RateLimit-Policy`, `RateLimit` and `X-RateLimit-*` lines of one route.

    `t` is the window in which `r` holds, so that `r / t` is never above the true rate. On a refusal
    it equals `Retry-After`, and limits that did not refuse omit it, so that it never points later.

    Args:
        rules: all rules of the route.
    """

    __slots__ = (
        "_has_draft",
        "_has_legacy",
        "_is_keyed",
        "_policy_line",
        "_rules",
        "_several",
        "_template",
        "_window",
    )

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._policy_line = _policy_line(rules)
        policy = rules[0].policy
        self._has_draft = policy.draft_headers
        self._has_legacy = policy.legacy_headers
        self._window = _window(rules[0])
        # Which limits there are, or which numbers they have, may depend on the key.
        self._is_keyed = is_keyed(rules) or is_tried(rules) or is_tiered(rules)
        is_plain = len(rules) == 1 and not self._is_keyed and not policy.throttlex_headers
        self._template = self._prepare(rules[0]) if is_plain else b""
        self._several = self._prepare_several(rules) if len(rules) > 1 else b""

    def _prepare(self, rule: Rule) -> bytes:
        """The lines of a route with a single limit, as a template: a tenth of the work."""
        text = self._policy_line.replace("%", "%%")
        if self._has_draft:
            title = _string(rule.title).replace("%", "%%")
            text += f'RateLimit: "{title}";r=%d;t=%d\r\n'
        if self._has_legacy:
            text += (
                f"X-RateLimit-Limit: {rule.limit.burst}\r\n"
                "X-RateLimit-Remaining: %d\r\nX-RateLimit-Reset: %d\r\n"
            )
        return text.encode("ascii")

    def _prepare_several(self, rules: Sequence[Rule]) -> bytes:
        """The lines of a route with several limits that admit a request; none if they differ."""
        shown = {(rule.policy.draft_headers, rule.policy.legacy_headers) for rule in rules}
        each = {(rule.key, rule.policy.name) for rule in rules}
        is_special = self._is_keyed or any(rule.policy.throttlex_headers for rule in rules)
        if is_special or len(shown) > 1 or len(each) < len(rules):
            return b""
        text = self._policy_line.replace("%", "%%")
        if self._has_draft:
            titles = [(_string(rule.title).replace("%", "%%"), _window(rule)) for rule in rules]
            items = [f'"{title}";r=%d;t={window}' for title, window in titles]
            text += f"RateLimit: {', '.join(items)}\r\n"
        if self._has_legacy:
            names = ("Limit", "Remaining", "Reset")
            text += "".join([f"X-RateLimit-{name}: %d\r\n" for name in names])
        return text.encode("ascii")

    def lines(self, rules: Sequence[Rule], verdict: Verdict) -> bytes:
        """Return the lines of one response.

        Args:
            rules: the rules that applied to the request.
            verdict: with a decision for each of them.
        """
        if self._template and len(rules) == 1 and verdict.retry_after_us != NEVER:
            return self._fill_in(verdict)
        if self._several and rules is self._rules and verdict.allowed:
            return self._fill_in_several(verdict.decisions)
        return self._written_out(rules, verdict)

    def _written_out(self, rules: Sequence[Rule], verdict: Verdict) -> bytes:
        items: list[str] = []
        tightest: tuple[Rule, Decision] | None = None
        pairs = _one_of_each(rules, verdict.decisions)
        for rule, decision in pairs:
            policy = rule.policy
            if policy.draft_headers:
                items.append(_item(rule, decision, verdict))
            if (policy.legacy_headers or policy.throttlex_headers) and (
                tightest is None or _room(decision) < _room(tightest[1])
            ):
                tightest = rule, decision
        text = self._policy_line
        if self._is_keyed:
            text = _policy_line([rule for rule, _ in pairs])
        if items:
            text += f"RateLimit: {', '.join(items)}\r\n"
        if tightest is not None:
            text += _legacy(*tightest, verdict)
        return text.encode("ascii")

    def _fill_in(self, verdict: Verdict) -> bytes:
        allowed, _, _, _, remaining, reset_us, _ = verdict.decisions[0]
        window = self._window
        if not allowed:
            remaining = 0
            window = seconds_up(verdict.retry_after_us)
        if not self._has_legacy:
            return self._template % (remaining, window) if self._has_draft else b""
        reset = -(-reset_us // US)
        if not self._has_draft:
            return self._template % (remaining, reset)
        return self._template % (remaining, window, remaining, reset)

    def _fill_in_several(self, decisions: Sequence[Decision]) -> bytes:
        numbers = [decision.remaining for decision in decisions] if self._has_draft else []
        if self._has_legacy:
            tightest = decisions[0]
            for decision in decisions:
                if decision.remaining < tightest.remaining:
                    tightest = decision
            numbers += (tightest.limit, tightest.remaining, -(-tightest.reset_us // US))
        return self._several % tuple(numbers)


def _policy_line(rules: Sequence[Rule]) -> str:
    items = [
        f'"{_string(rule.title)}";q={rule.limit.burst};w={_window(rule)}'
        for rule in rules
        if rule.policy.draft_headers
    ]
    return f"RateLimit-Policy: {', '.join(items)}\r\n" if items else ""


def _one_of_each(
    rules: Sequence[Rule], decisions: Sequence[Decision]
) -> Collection[tuple[Rule, Decision]]:
    """Yield limits with their decisions; of several keys of a limit, the tightest."""
    found: dict[tuple[KeyOf, str], tuple[Rule, Decision]] = {}
    for rule, decision in zip(rules, decisions, strict=True):
        # Each limit of a policy has its own, whatever numbers a key overrides it with.
        line = rule.key, rule.policy.name
        before = found.get(line)
        if before is None or _room(decision) < _room(before[1]):
            found[line] = rule, decision
    return found.values()


def _room(decision: Decision) -> tuple[bool, int]:
    return decision.allowed, decision.remaining


def _item(rule: Rule, decision: Decision, verdict: Verdict) -> str:
    remaining = decision.remaining if decision.allowed else 0
    item = f'"{_string(rule.title)}";r={remaining}'
    if verdict.allowed:
        return f"{item};t={_window(rule)}"
    if not decision.allowed and verdict.retry_after_us != NEVER:
        return f"{item};t={seconds_up(verdict.retry_after_us)}"
    return item


def _legacy(rule: Rule, decision: Decision, verdict: Verdict) -> str:
    remaining = decision.remaining if decision.allowed else 0
    text = f"X-RateLimit-Limit: {decision.limit}\r\nX-RateLimit-Remaining: {remaining}\r\n"
    if rule.policy.legacy_headers:
        return f"{text}X-RateLimit-Reset: {-(-decision.reset_us // US)}\r\n"
    if not verdict.allowed:
        return text  # The refusal itself sends Retry-After.
    next_us = _next_us(rule.limit, decision)
    return text if next_us is None else f"{text}Retry-After: {-(-next_us // US)}\r\n"


def _next_us(limit: Limit, decision: Decision) -> int | None:
    """Return after how long one more request may pass; None if only the store knows."""
    if decision.remaining:
        return 0
    if limit.algorithm != "token_bucket":
        # The oldest request of a window leaves first, and only the newest is known.
        return None
    return max(0, decision.reset_us - (limit.tolerance_ns - limit.interval_ns) // NS_PER_US)


def _window(rule: Rule) -> int:
    """Return the seconds in which the whole burst refills, at least 1."""
    limit = rule.limit
    if limit.algorithm == "token_bucket":
        return max(1, -(-limit.tolerance_ns // (1000 * US)))
    return max(1, -(-limit.period_us // US))


@lru_cache(maxsize=1024)
def _string(text: str) -> str:
    """Return the content of a Structured Fields string (RFC 9651, section 3.3.3): ASCII only."""
    plain = text.encode("ascii", "replace").decode("ascii")
    return "".join(
        "\\" + character if character in '"\\' else character
        for character in plain
        if " " <= character <= "~"
    )
