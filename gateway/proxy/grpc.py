"""gRPC over HTTP/2: which requests are calls, their deadlines, and the gateway's own answers.

The protocol is that of grpc/doc/PROTOCOL-HTTP2.md: an error is a response with the status 200 whose
`grpc-status` says what is wrong. Pure.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from aiohttp.hdrs import CONTENT_TYPE

from gateway.http.answer import PROBLEM_TYPE, Answer
from gateway.proxy.upstream.retry import GRPC_OUTCOMES

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.proxy.upstream.answer_reader import AnswerReader

CANCELLED: Final = 1
UNKNOWN: Final = 2
DEADLINE_EXCEEDED: Final = 4
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

_BY_STATUS: Final = {
    # As grpc/doc/http-grpc-status-mapping.md has them, where the gateway does not know better.
    400: INTERNAL,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    408: DEADLINE_EXCEEDED,
    413: RESOURCE_EXHAUSTED,
    429: RESOURCE_EXHAUSTED,
    500: INTERNAL,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: DEADLINE_EXCEEDED,
}

MAX_PUSHBACK_MS: Final = 2**31 - 1
"""25 days, the most that `grpc-retry-pushback-ms` can say."""

_is_grpc: Final = re.compile(r"application/grpc(?:[+;].*)?", re.IGNORECASE | re.DOTALL).fullmatch
_timeout: Final = re.compile(r"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_retry_after: Final = re.compile(rb"(?im)^retry-after:[ \t]*([0-9]+)").search
_status_line: Final = re.compile(rb"\r\n(?i:grpc-status):[ \t]*([0-9]{1,2})[ \t]*(?=\r\n|$)").search
_has_pushback: Final = re.compile(rb"\r\n(?i:grpc-retry-pushback-ms):").search
_kept_fields: Final = re.compile(
    rb"(?im)^(?!content-type:|cache-control:|vary:)[^\r\n]+\r\n"
).findall


def is_call(request: Request) -> bool:
    """Return whether a POST request is a call of gRPC."""
    return request.is_http_2 and _is_grpc(request.headers.get(CONTENT_TYPE, "")) is not None


def deadline_of(request: Request, now: float) -> float:
    """Return when the client stops waiting for a call, by `grpc-timeout`; `inf` for never.

    Args:
        request: the call.
        now: the loop's time.
    """
    match = _timeout(request.headers.get("grpc-timeout", ""))
    return inf if match is None else now + int(match[1]) * _UNITS_S[match[2]]


def outcome_of(answer: AnswerReader) -> int:
    """Return what became of a call as far as its first frame says, for retries.

    That is the status of HTTP, or, if the response consists of a head only, `GRPC_OUTCOMES` and the
    `grpc-status` in it, unless the upstream says itself when to come back.
    """
    fields = answer.head.fields
    match = _status_line(fields) if answer.is_complete and not answer.body else None
    if match is None or int(match[1]) == 0 or _has_pushback(fields):
        return answer.status
    return GRPC_OUTCOMES + int(match[1])


def as_status(outcome: int) -> int:
    """Return the status of HTTP that stands for an outcome, for the judge of a target."""
    return (
        outcome
        if outcome < GRPC_OUTCOMES
        else 503
        if outcome == GRPC_OUTCOMES + UNAVAILABLE
        else 200
    )


def code_of(reply: Answer, error: str, *, is_refused: bool) -> int:
    """Return the status of the gateway's own answer to a call.

    Args:
        reply: the answer, as over HTTP.
        error: what went wrong, as a short kind; empty if nothing did.
        is_refused: whether a limit has refused the call.
    """
    if is_refused and not error:
        return RESOURCE_EXHAUSTED
    if error in ("timeout_connect", "timeout_queue"):
        return UNAVAILABLE
    return _BY_STATUS.get(reply.status, UNKNOWN)


@lru_cache(maxsize=1024)
def grpc_reply(reply: Answer, code: int) -> Answer:
    """Return an answer of the gateway as one to a call: a head without a body.

    `grpc-retry-pushback-ms` (gRFC A6) says when to come back, where `Retry-After` does. It is
    negative, which means not at all, if a refused call can never pass, or only after more
    milliseconds than its 32 bits hold.
    """
    fields = b"".join(_kept_fields(reply.fields))
    after = _retry_after(reply.fields)
    pushback = b""
    if after is not None:
        after_ms = int(after[1]) * 1000
        pushback_ms = after_ms if after_ms <= MAX_PUSHBACK_MS else -1
        pushback = b"Grpc-Retry-Pushback-Ms: %d\r\n" % pushback_ms
    elif code == RESOURCE_EXHAUSTED:
        pushback = b"Grpc-Retry-Pushback-Ms: -1\r\n"
    message = quote(_message(reply), safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}~")
    own = f"Content-Type: application/grpc\r\nGrpc-Status: {code}\r\nGrpc-Message: {message}\r\n"
    return Answer(200, own.encode("ascii") + pushback + fields, b"")


def _message(reply: Answer) -> str:
    if reply.fields.startswith(PROBLEM_TYPE):
        title: str = json.loads(reply.body)["title"]
        return title
    return HTTPStatus(reply.status).phrase
