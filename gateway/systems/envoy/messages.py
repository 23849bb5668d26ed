"""Messages between Envoy and its rate limit service (`envoy.service.ratelimit.v3`).

Field numbers, in the files in `protos/`, are those of Envoy's
`api/envoy/service/ratelimit/v3/rls.proto` and
`api/envoy/extensions/common/ratelimit/v3/ratelimit.proto`, as of Envoy 1.40. Options, and fields
that it does not send or read, are left out; a reader skips unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf import duration_pb2, struct_pb2, wrappers_pb2
from google.protobuf.json_format import MessageToDict

from gateway.systems.grpc.protobuf import DecodeError, Messages, known, read_files

__all__ = [
    "MESSAGES",
    "METHOD",
    "OK",
    "OVER_LIMIT",
    "SERVICE",
    "UNITS",
    "UNITS_S",
    "DecodeError",
    "Descriptor",
    "DescriptorStatus",
    "EnvoyQuestion",
    "EnvoyStatus",
    "Override",
    "Reply",
    "read_question",
    "read_reply",
    "write_question",
    "write_reply",
]

_PACKAGE: Final = "envoy.service.ratelimit.v3"
SERVICE: Final = f"{_PACKAGE}.RateLimitService"
METHOD: Final = "ShouldRateLimit"

OK: Final = 1
OVER_LIMIT: Final = 2

UNITS_S: Final[Mapping[int, int]] = {
    1: 1,
    2: 60,
    3: 3_600,
    4: 86_400,
    5: 30 * 86_400,
    6: 365 * 86_400,
}
"""Seconds of each unit of time, by its number: second, minute, hour, day, month and year.

A month has 30 days and a year 365, as in Envoy's own service.
"""

UNITS: Final = ("UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")
"""The names of the units of time, by number."""

MESSAGES: Final = Messages(
    [
        *(known(module) for module in (duration_pb2, struct_pb2, wrappers_pb2)),
        *read_files("gateway.systems.envoy", "envoy.pb"),
    ]
)

_Request: Final = MESSAGES[f"{_PACKAGE}.RateLimitRequest"]
_Response: Final = MESSAGES[f"{_PACKAGE}.RateLimitResponse"]
_Limit: Final = MESSAGES[f"{_PACKAGE}.RateLimitResponse.RateLimit"]


class Override(NamedTuple):
    """A limit in a descriptor, which replaces the configured one.

    Attributes:
        requests: how many, in ...
        unit: ... a unit of time: a number of `UNITS_S`, or an unknown one.
    """

    requests: int
    unit: int


class Descriptor(NamedTuple):
    """The properties that a request is limited by: keys with their values, in order.

    Attributes:
        entries: the pairs.
        override: the limit that replaces the configured one.
        hits: the cost; 0 looks without taking, None uses the request's.
        is_refund: whether to give `hits` back instead.
    """

    entries: tuple[tuple[str, str], ...]
    override: Override | None = None
    hits: int | None = None
    is_refund: bool = False


class EnvoyQuestion(NamedTuple):
    """A request from Envoy.

    Attributes:
        domain: selects the rules.
        descriptors: all of them must pass.
        hits: the cost of each descriptor that has none itself; 0 stands for 1.
    """

    domain: str
    descriptors: Sequence[Descriptor]
    hits: int = 0


class DescriptorStatus(NamedTuple):
    """A limit, as reported to callers.

    Attributes:
        requests: how many, in ...
        unit: ... a unit of time, by its number; 0 if no unit is as long.
        name: of the rule; empty if it has none.
    """

    requests: int
    unit: int
    name: str = ""


class EnvoyStatus(NamedTuple):
    """The answer to one descriptor.

    Attributes:
        code: `OK` or `OVER_LIMIT`.
        limit: the limit that applies; None if nothing limits it.
        remaining: how much is left.
        reset_s: seconds until there is more; None if that is meaningless.
    """

    code: int
    limit: DescriptorStatus | None = None
    remaining: int = 0
    reset_s: int | None = None


class Reply(NamedTuple):
    """The answer to Envoy.

    Attributes:
        code: `OK` or `OVER_LIMIT`.
        statuses: one for each descriptor, in order.
        headers: fields added to the response.
        body: of the response, if it is a refusal.
        metadata: dynamic metadata for Envoy's other filters; None for nothing.
    """

    code: int
    statuses: Sequence[EnvoyStatus]
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    metadata: Mapping[str, Any] | None = None


def read_question(data: bytes) -> EnvoyQuestion:
    """Read a `RateLimitRequest`.

    Raises:
        DecodeError: it is not a valid message, or a text in it is not UTF-8.
    """
    found = _Request.FromString(data)
    return EnvoyQuestion(
        found.domain, [_descriptor(one) for one in found.descriptors], found.hits_addend
    )


def _descriptor(found: Any) -> Descriptor:
    entries = tuple([(entry.key, entry.value) for entry in found.entries])
    override = hits = None
    if found.HasField("limit"):
        override = Override(found.limit.requests_per_unit, found.limit.unit)
    if found.HasField("hits_addend"):
        hits = found.hits_addend.value
    return Descriptor(entries, override, hits, found.is_negative_hits)


def write_question(question: EnvoyQuestion) -> bytes:
    """Write a `RateLimitRequest`."""
    made = _Request(domain=question.domain, hits_addend=question.hits)
    for descriptor in question.descriptors:
        one = made.descriptors.add(is_negative_hits=descriptor.is_refund)
        for key, value in descriptor.entries:
            one.entries.add(key=key, value=value)
        if descriptor.override is not None:
            one.limit.requests_per_unit, one.limit.unit = descriptor.override
            one.limit.SetInParent()
        if descriptor.hits is not None:
            one.hits_addend.value = descriptor.hits
            one.hits_addend.SetInParent()
    return bytes(made.SerializeToString())


def write_reply(reply: Reply) -> bytes:
    """Write a `RateLimitResponse`.

    Statuses are written by hand, since every reply has some: it takes a third of the time.
    """
    parts = [b"\x08", _varint(reply.code)]
    for status in reply.statuses:
        body = _write_status(status)
        parts += (b"\x12", _varint(len(body)), body)
    if reply.headers or reply.body or reply.metadata is not None:
        rest = _Response(raw_body=reply.body)
        for key, value in reply.headers:
            rest.response_headers_to_add.add(key=key, value=value)
        if reply.metadata is not None:
            rest.dynamic_metadata.update(reply.metadata)
        parts.append(rest.SerializeToString())
    return b"".join(parts)


def _write_status(status: EnvoyStatus) -> bytes:
    """Return a `DescriptorStatus`; as always in proto3, numbers that are 0 are left out."""
    code, limit, remaining, reset_s = status
    data = b"\x08" + _varint(code)
    if limit is not None:
        data += _write_limit(limit)
    if remaining:
        data += b"\x18" + _varint(remaining)
    if reset_s is not None:
        seconds = b"\x08" + _varint(reset_s) if reset_s else b""
        data += b"\x22" + _varint(len(seconds)) + seconds
    return data


@lru_cache(maxsize=4096)
def _write_limit(limit: DescriptorStatus) -> bytes:
    """Return a `current_limit`, with its tag and length in the status."""
    made = _Limit(requests_per_unit=limit.requests, unit=limit.unit, name=limit.name)
    data: bytes = made.SerializeToString()
    return b"\x12" + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Return a varint: seven bits in each byte, lowest first; the eighth says that more follow."""
    if number < 0x80:
        return _SMALL[number]
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


_SMALL: Final = [bytes((number,)) for number in range(0x80)]


def read_reply(data: bytes) -> Reply:
    """Read a `RateLimitResponse`.

    Raises:
        DecodeError: it is not a valid message, or a text in it is not UTF-8.
    """
    found = _Response.FromString(data)
    headers = [(header.key, header.value) for header in found.response_headers_to_add]
    metadata = None
    if found.HasField("dynamic_metadata"):
        metadata = MessageToDict(found.dynamic_metadata)
    statuses = [_status(one) for one in found.statuses]
    return Reply(found.overall_code, statuses, headers, found.raw_body, metadata)


def _status(found: Any) -> EnvoyStatus:
    limit = found.current_limit
    status = DescriptorStatus(limit.requests_per_unit, limit.unit, limit.name)
    has_reset = found.HasField("duration_until_reset")
    return EnvoyStatus(
        found.code,
        status if found.HasField("current_limit") else None,
        found.limit_remaining,
        found.duration_until_reset.seconds if has_reset else None,
    )
