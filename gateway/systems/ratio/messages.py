"""What ratio's clients and servers say to each other.

ratio's `api/proto/ratio.proto` has no package, so its one method is `/RateLimitService/RateLimit`.
A request names who owns a resource, and the resource; the answer is one code. There is nothing
that says how much is left, or when to come back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.systems.grpc.protobuf import DecodeError, Messages, read_files

SERVICE: Final = "RateLimitService"
METHOD: Final = "RateLimit"

MESSAGES: Final = Messages(read_files("gateway.systems.ratio", "ratio.pb"))

_REQUEST: Final = MESSAGES["RateLimitRequest"]
_RESPONSE: Final = MESSAGES["RateLimitResponse"]

UNKNOWN: Final = 0
OK: Final = 1
OVER_LIMIT: Final = 2


class RatioQuestion(NamedTuple):
    """What a client asks.

    Attributes:
        owner: whose resource it is: a service, mostly. May be empty.
        resource: what is limited. May be empty.
    """

    owner: str
    resource: str


def read_question(data: bytes) -> RatioQuestion:
    """Read a `RateLimitRequest`.

    Raises:
        DecodeError: it is none, or a text in it is no UTF-8.
    """
    found = _REQUEST.FromString(data)
    return RatioQuestion(found.owner, found.resource)


def write_question(question: RatioQuestion) -> bytes:
    """Write a `RateLimitRequest`."""
    return bytes(_REQUEST(owner=question.owner, resource=question.resource).SerializeToString())


def read_code(data: bytes) -> int:
    """Read the code of a `RateLimitResponse`; one that is not known is `UNKNOWN`.

    Raises:
        DecodeError: it is none.
    """
    code: int = _RESPONSE.FromString(data).code
    return code if code in (OK, OVER_LIMIT) else UNKNOWN


def write_code(code: int) -> bytes:
    """Write a `RateLimitResponse`."""
    return bytes(_RESPONSE(code=code).SerializeToString())


__all__ = [
    "MESSAGES",
    "METHOD",
    "OK",
    "OVER_LIMIT",
    "SERVICE",
    "UNKNOWN",
    "DecodeError",
    "RatioQuestion",
    "read_code",
    "read_question",
    "write_code",
    "write_question",
]
