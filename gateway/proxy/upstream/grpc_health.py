"""Health checks by `grpc.health.v1` (grpc/doc/health-checking.md), as a request and its answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.proxy.upstream.connection import UpstreamConnection

_SERVING: Final = b"\x00\x00\x00\x00\x02\x08\x01"
"""A message of two bytes, uncompressed: the field 1, `status`, is 1."""
_ANSWER_MAX: Final = 1024
_status: Final = re.compile(rb"\r\n(?i:grpc-status):[ \t]*([0-9]+)").search


def grpc_check(service: str, fields: str) -> bytes:
    """Return the request that asks for the health of a service; empty for the whole server.

    Args:
        service: its name.
        fields: header lines of the request, each with its line end.
    """
    name = service.encode("ascii")
    # The field 1, `service`, of the message; left out if it is empty.
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    head = (
        "POST /grpc.health.v1.Health/Check HTTP/1.1\r\n"
        f"{fields}TE: trailers\r\nContent-Type: application/grpc\r\n\r\n"
    )
    return head.encode("ascii") + body


def _varint(number: int) -> bytes:
    """Return a number as Protocol Buffers write it."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


async def grpc_failure(connection: UpstreamConnection) -> str:
    """Return what is wrong with the answer to a check; nothing if it passed.

    Raises:
        UpstreamError: the answer broke off.
    """
    answer = connection.answer
    if answer.status != 200:
        return f"status {answer.status}"
    body = b""
    while len(body) < _ANSWER_MAX and (piece := await connection.read()):
        body += piece
    match = _status(answer.trailers) or _status(answer.head.fields)
    if match is None or match[1] != b"0":
        return f"gRPC status {match[1].decode('ascii') if match else 'missing'}"
    return "" if body == _SERVING else "not serving"
