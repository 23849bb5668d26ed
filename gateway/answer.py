"""The answers that the gateway gives by itself, and the fields it adds to others': no I/O.

Problem documents are RFC 9457; the `RateLimit` fields are
draft-ietf-httpapi-ratelimit-headers (`q`, `w`, `r`, `t`), with `X-RateLimit-*` beside them
where configured. Nothing that a client sent is ever repeated in them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

from gateway.errors import UpstreamError
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.policy import Policy, Rule

US: Final = 1_000_000
_PHRASES: Final = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable"}
"""What RFC 9110 calls them, and Python before 3.13 does not."""
_PROBLEM_TYPES: Final = "https://iana.org/assignments/http-problem-types#"


PROBLEM_TYPE: Final = b"Content-Type: application/problem+json\r\n"
"""What the fields of every problem document begin with."""


class Answer(NamedTuple):
    """A whole answer of the gateway's own, without what depends on the connection.

    Attributes:
        status: the status code.
        fields: header lines, each with its line end, `Content-Type` among them.
        body: the body; empty for none.
    """

    status: int
    fields: bytes
    body: bytes


NO_FURTHER: Final = Answer(200, b"Cache-Control: no-store\r\n", b"")
"""To an OPTIONS request whose `Max-Forwards` ends here (RFC 9110, section 7.6.2)."""


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """The status line of an answer of the gateway's own."""
    phrase = _PHRASES.get(status) or HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\n".encode("ascii")


def problem(
    status: int, title: str, *, kind: str = "about:blank", fields: bytes = b"", **members: object
) -> Answer:
    """A problem document (RFC 9457).

    Args:
        status: the status code.
        title: constant text in plain words.
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
    """Whole seconds, rounded up and at least 1: a client that obeys is not early."""
    return max(1, -(-us // US))


def refusal(policy: Policy, verdict: Verdict) -> Answer:
    """What a client is told whose request is over the limit.

    Args:
        policy: the policy that refused it.
        verdict: for `Retry-After`; left out if the request could never pass.
    """
    if verdict.retry_after_us == NEVER:
        return _refusal(policy, None)
    return _refusal(policy, seconds_up(verdict.retry_after_us))


@lru_cache(maxsize=1024)
def _refusal(policy: Policy, retry_after: int | None) -> Answer:
    """Made once for each second that a flood of refused requests is told to wait."""
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


def closed(retry_after_us: int) -> Answer:
    """What a client is told while the store is away and the policy says `closed`."""
    retry_after = seconds_up(retry_after_us)
    return problem(
        503,
        "The rate limiter's store cannot be reached",
        kind=_PROBLEM_TYPES + "temporary-reduced-capacity",
        fields=b"Retry-After: %d\r\n" % retry_after,
        **{"retry-after": retry_after},
    )


def failed(error: UpstreamError) -> Answer:
    """What a client is told whose request an upstream did not answer as it should."""
    if not error.retry_after_us:
        return problem(error.status, error.title, error=error.kind)
    retry_after = seconds_up(error.retry_after_us)
    members: dict[str, object] = {"error": error.kind, "retry-after": retry_after}
    fields = b"Retry-After: %d\r\n" % retry_after
    return problem(error.status, error.title, kind="about:blank", fields=fields, **members)


class LimitFields:
    """Makes the `RateLimit-Policy`, `RateLimit` and `X-RateLimit-*` lines of one route.

    `t` is the window in which `r` holds, so that `r / t` is never above the true rate; on a
    refusal it equals `Retry-After`, and limits that did not refuse leave it out, so that it
    never points later.

    Args:
        rules: all the rules of the route.
    """

    __slots__ = ("_has_draft", "_has_legacy", "_policy_line", "_template", "_window")

    def __init__(self, rules: Sequence[Rule]) -> None:
        items = [
            f'"{_string(rule.title)}";q={rule.limit.burst};w={_window(rule)}'
            for rule in rules
            if rule.policy.draft_headers
        ]
        self._policy_line = f"RateLimit-Policy: {', '.join(items)}\r\n" if items else ""
        self._has_draft = rules[0].policy.draft_headers
        self._has_legacy = rules[0].policy.legacy_headers
        self._window = _window(rules[0])
        self._template = self._prepare(rules[0]) if len(rules) == 1 else b""

    def _prepare(self, rule: Rule) -> bytes:
        """The lines of a route with one limit, to be filled in: a tenth of the work."""
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

    def lines(self, rules: Sequence[Rule], verdict: Verdict) -> bytes:
        """The lines of one answer.

        Args:
            rules: those that were asked about the request.
            verdict: with a decision for each of them.
        """
        if self._template and verdict.retry_after_us != NEVER:
            return self._fill_in(verdict)
        items: list[str] = []
        tightest: Decision | None = None
        for rule, decision in zip(rules, verdict.decisions, strict=True):
            if rule.policy.draft_headers:
                items.append(_item(rule, decision, verdict))
            if rule.policy.legacy_headers and (
                tightest is None
                or (decision.allowed, decision.remaining) < (tightest.allowed, tightest.remaining)
            ):
                tightest = decision
        text = self._policy_line
        if items:
            text += f"RateLimit: {', '.join(items)}\r\n"
        if tightest is not None:
            text += _legacy(tightest)
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


def _item(rule: Rule, decision: Decision, verdict: Verdict) -> str:
    remaining = decision.remaining if decision.allowed else 0
    item = f'"{_string(rule.title)}";r={remaining}'
    if verdict.allowed:
        return f"{item};t={_window(rule)}"
    if not decision.allowed and verdict.retry_after_us != NEVER:
        return f"{item};t={seconds_up(verdict.retry_after_us)}"
    return item


def _legacy(decision: Decision) -> str:
    remaining = decision.remaining if decision.allowed else 0
    reset = -(-decision.reset_us // US)
    return (
        f"X-RateLimit-Limit: {decision.limit}\r\n"
        f"X-RateLimit-Remaining: {remaining}\r\n"
        f"X-RateLimit-Reset: {reset}\r\n"
    )


def _window(rule: Rule) -> int:
    """Seconds in which the whole burst comes back, at least 1."""
    limit = rule.limit
    if limit.algorithm == "token_bucket":
        return max(1, -(-limit.tolerance_ns // (1000 * US)))
    return max(1, -(-limit.period_us // US))


@lru_cache(maxsize=1024)
def _string(text: str) -> str:
    """The inside of a Structured Fields string (RFC 9651, section 3.3.3): ASCII only."""
    plain = text.encode("ascii", "replace").decode("ascii")
    return "".join(
        "\\" + character if character in '"\\' else character
        for character in plain
        if " " <= character <= "~"
    )
