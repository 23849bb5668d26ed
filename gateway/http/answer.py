"""The gateway's own responses: no I/O.

Problem documents are RFC 9457. They repeat nothing that a client sent, except for its key in
responses in ThrottleX's form, which include it by design. The fields that tell of limits are made
by `gateway.http.limit_fields`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

from gateway.base.clock import US
from gateway.base.errors import UpstreamError
from gateway.limiter.plan import CompiledPolicy
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.decision import NEVER, Verdict

_PHRASES: Final = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable"}
"""Names from RFC 9110 that Python before 3.13 lacks."""
_KINDS: Final = {
    429: ("quota-exceeded", "Too many requests"),
    503: ("temporary-reduced-capacity", "Too busy"),
}
"""The problems that refusals are, and their titles, by status."""
_PROBLEM_TYPES: Final = "https://iana.org/assignments/http-problem-types#"


FAR_US: Final = 3_660 * 86_400 * US
"""The longest `Retry-After`, ten years: only limits that never refill take longer
(`limits.throttlex`), and the number of seconds would not fit 32 bits.
"""

PROBLEM_TYPE: Final = b"Content-Type: application/problem+json\r\n"
"""The first fields of every problem document."""
THROTTLEX_TYPE: Final = b"Content-Type: application/json\r\nCache-Control: no-store\r\n"
"""The first fields of every refusal in ThrottleX's form."""


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


def refusal(policy: CompiledPolicy, verdict: Verdict, draw: float = 0.0) -> Answer:
    """Return the response to a request over its limit.

    Args:
        policy: the policy that refused it.
        verdict: for `Retry-After`; left out if the request could never pass.
        draw: a random number below 1, for the policy's jitter.
    """
    return _refusal(policy, _told_s(policy, verdict, draw))


def retry_after_s(verdict: Verdict) -> int | None:
    """Return the seconds a refused client should wait; None if waiting does not help."""
    retry_after_us = verdict.retry_after_us
    return (
        None if retry_after_us == NEVER or retry_after_us > FAR_US else seconds_up(retry_after_us)
    )


def _told_s(policy: CompiledPolicy, verdict: Verdict, draw: float) -> int | None:
    """Return the seconds that `Retry-After` says: as above, lengthened by the policy's jitter.

    They are whole, so that less than ten seconds are never lengthened by a tenth.
    """
    wait = retry_after_s(verdict)
    if wait is None or not policy.jitter:
        return wait
    return wait + int(draw * (wait * policy.jitter // PARTS_PER_WHOLE + 1))


@lru_cache(maxsize=1024)
def _refusal(policy: CompiledPolicy, retry_after: int | None) -> Answer:
    """Return the response, cached for each second of waiting during a flood of refusals."""
    fields = b""
    members: dict[str, object] = {"violated-policies": [policy.name]}
    if retry_after is not None:
        members["retry-after"] = retry_after
        fields = b"Retry-After: %d\r\n" % retry_after
    if policy.body == "problem":
        kind, title = _KINDS[policy.status]
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


def plain_refusal(status: int, retry_after: int | None) -> Answer:
    """Return a problem document in place of a refusal in ThrottleX's form.

    Args:
        status: the status of the refusal.
        retry_after: what its `Retry-After` says; None if it has none.
    """
    kind, title = _KINDS[status]
    members: dict[str, object] = {} if retry_after is None else {"retry-after": retry_after}
    return problem(status, title, kind=_PROBLEM_TYPES + kind, fields=b"", **members)


def throttlex_refusal(
    policy: CompiledPolicy, verdict: Verdict, key: str, now_us: int, draw: float = 0.0
) -> Answer:
    """Return the refusal in ThrottleX's form (its design, section 4).

    Args:
        policy: the policy that refused it.
        verdict: for `Retry-After`.
        key: the key that the client is counted under.
        now_us: microseconds since 1970.
        draw: as in `refusal`.
    """
    message = f"Rate limit exceeded for key: {key}"
    return _throttlex(policy.status, message, _told_s(policy, verdict, draw), now_us)


def throttlex_closed(retry_after_us: int, now_us: int) -> Answer:
    """Return ThrottleX's response while the store is unavailable and the policy says `closed`."""
    message = "The rate limiter's store is unavailable"
    return _throttlex(503, message, seconds_up(retry_after_us), now_us)


def _throttlex(status: int, message: str, retry_after: int | None, now_us: int) -> Answer:
    fields = THROTTLEX_TYPE
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
