"""Smockron's messages: frames of ZeroMQ to values and back.

Gatekeepers report the result of each request to their master (accounting), and the master tells
gatekeepers until when to hold requests of an identifier (control). The first frame of both is the
domain followed by a NUL, so that a subscription to `api` does not include `api2`. Both tables are
from Smockron's README; what its programs do beyond that is documented here.

Times are milliseconds since 1970 in ASCII in messages, microseconds here. They are sent as whole
numbers, rounded up, because the module for nginx reads them with `atol`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

Frames = Sequence[bytes]

DEFAULT_PORT: Final = 10004
"""Port of the accounting socket. The control socket is always at the next port."""

MAX_NAME: Final = 255
"""The most bytes of a domain or an identifier; longer ones are malformed. The module for nginx
reads 256 bytes of a frame, including the NUL of the domain."""
MAX_KEY: Final = 256
"""The most bytes of domain, NUL and identifier together that the module for nginx accepts."""
MAX_INFO: Final = 512
"""The most bytes of log information that are kept or sent."""

_DELAY_UNTIL: Final = b"DELAY_UNTIL"
_NUL: Final = b"\0"

_read_time: Final = re.compile(rb"([0-9]{1,15})(?:\.([0-9]{1,30}))?").fullmatch


class StatusMessage(Enum):
    """What a gatekeeper did with a request."""

    ACCEPTED = b"ACCEPTED"
    DELAYED = b"DELAYED"
    REJECTED = b"REJECTED"


_STATUSES: Final = {status.value: status for status in StatusMessage}


class MalformedMessage(ValueError):
    """Frames that are not a message of this protocol."""


class Accounting(NamedTuple):
    """The report on one request.

    Attributes:
        domain: the domain; bytes that are not UTF-8 are kept as lone surrogates.
        status: what the gatekeeper did.
        identifier: the client.
        received_us: when the request arrived, by the gatekeeper's clock.
        delayed_us: when it proceeded, if it was delayed; otherwise 0.
        info: for logs; at most `MAX_INFO` bytes of it.
    """

    domain: str
    status: StatusMessage
    identifier: str
    received_us: int
    delayed_us: int = 0
    info: bytes = b""

    @property
    def at_us(self) -> int:
        """When the request proceeded."""
        return self.delayed_us if self.status is StatusMessage.DELAYED else self.received_us


class DelayUntil(NamedTuple):
    """Requests of an identifier wait until a moment."""

    domain: str
    identifier: str
    until_us: int


def topic(domain: str) -> bytes:
    """Return the first frame of a domain's messages, to which gatekeepers subscribe."""
    return encode_name(domain) + _NUL


def read_accounting(frames: Frames) -> Accounting:
    """Read a gatekeeper's message: five frames, or six with log information.

    Raises:
        MalformedMessage: it is something else.
    """
    if not 5 <= len(frames) <= 6:
        raise MalformedMessage("an accounting message has 5 or 6 frames")
    status = _STATUSES.get(frames[1])
    if status is None:
        raise MalformedMessage("the status is none of ACCEPTED, DELAYED and REJECTED")
    delayed_us = _time(frames[4]) if status is StatusMessage.DELAYED else 0
    return Accounting(
        _name(frames[0].removesuffix(_NUL)),
        status,
        _name(frames[2]),
        _time(frames[3]),
        delayed_us,
        frames[5][:MAX_INFO] if len(frames) == 6 else b"",
    )


def write_accounting(message: Accounting) -> list[bytes]:
    """Return six frames; times are rounded up to whole milliseconds."""
    delayed = b"%d" % _ms_up(message.delayed_us) if message.status is StatusMessage.DELAYED else b""
    return [
        topic(message.domain),
        message.status.value,
        encode_name(message.identifier),
        b"%d" % _ms_up(message.received_us),
        delayed,
        message.info[:MAX_INFO],
    ]


def read_control(frames: Frames) -> DelayUntil | None:
    """Read a master's message; return None for an unknown command, which is to be ignored.

    Frames after the fourth are ignored: later versions may add arguments.

    Raises:
        MalformedMessage: it is not a message of a master.
    """
    if len(frames) < 2:
        raise MalformedMessage("a control message has at least 2 frames")
    if frames[1] != _DELAY_UNTIL:
        return None
    if len(frames) < 4:
        raise MalformedMessage("DELAY_UNTIL has an identifier and a time")
    return DelayUntil(_name(frames[0].removesuffix(_NUL)), _name(frames[2]), _time(frames[3]))


def write_control(message: DelayUntil) -> list[bytes] | None:
    """Return four frames; None if it is too long for the module for nginx."""
    first, identifier = topic(message.domain), encode_name(message.identifier)
    if len(first) + len(identifier) > MAX_KEY:
        return None
    return [first, _DELAY_UNTIL, identifier, b"%d" % _ms_up(message.until_us)]


def _name(frame: bytes) -> str:
    if len(frame) > MAX_NAME:
        raise MalformedMessage(f"a name has more than {MAX_NAME} bytes")
    return decode_name(frame)


def encode_name(name: str) -> bytes:
    """Return the bytes of a domain or an identifier."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(frame: bytes) -> str:
    """Return a domain or an identifier; bytes that are not UTF-8 are kept as lone surrogates."""
    return frame.decode("utf-8", "surrogateescape")


def _time(frame: bytes) -> int:
    """Return microseconds, rounded up: Smockron's master may send fractions of a millisecond."""
    found = _read_time(frame)
    if found is None:
        raise MalformedMessage("a time is no decimal number of milliseconds")
    whole, fraction = found.groups()
    us = int(whole) * 1000
    if fraction:
        us += int(fraction[:3].ljust(3, b"0")) + bool(fraction[3:].strip(b"0"))
    return us


def _ms_up(us: int) -> int:
    return -(-us // 1000)
