"""The messages of ratio's clients and servers.

ratio's `api/proto/ratio.proto` has no package, so its one method is `/RateLimitService/RateLimit`.
A request names a resource and its owner; the answer is a code. There is no field for what is left,
or for when to retry.
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
    """A client's question.

    Attributes:
        owner: of the resource, usually a service. May be empty.
        resource: may be empty.
    """

    owner: str
    resource: str


def read_question(data: bytes) -> RatioQuestion:
    """Read a `RateLimitRequest`.

    Raises:
        DecodeError: it is not one, or a text in it is not UTF-8.
    """
    found = _REQUEST.FromString(data)
    return RatioQuestion(found.owner, found.resource)


def write_question(question: RatioQuestion) -> bytes:
    """Write a `RateLimitRequest`."""
    return bytes(_REQUEST(owner=question.owner, resource=question.resource).SerializeToString())


def read_code(data: bytes) -> int:
    """Read the code of a `RateLimitResponse`; an unknown one becomes `UNKNOWN`.

    Raises:
        DecodeError: it is not one.
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
