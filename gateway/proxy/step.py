"""What comes next in an exchange: something to wait for, or something to do."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from gateway.http.answer import Answer


class Wait(Enum):
    """What an exchange waits for, and its method that goes on from there; or its end."""

    CONNECT = "a connection to the target; then `connected` or `failed`"
    HEAD = "the head of the response; the upstream connection calls back"
    UPLOAD = "the same, while the body of the request is streamed"
    WHOLE = "nothing: all of the response is here, to be passed on; then `release`"
    RELAY = "the rest of the response, as it comes; then `release`"
    TUNNEL = "the end of a WebSocket; then `release`"
    DONE = "nothing: the response is written"


class Pause(NamedTuple):
    """Wait before the next attempt; then `forward`."""

    seconds: float


class SendReply(NamedTuple):
    """Answer with a response of the gateway's own."""

    answer: Answer


Step = Wait | Pause | SendReply

# Looked up in a class, a member costs ten times as much.
CONNECT: Final = Wait.CONNECT
HEAD: Final = Wait.HEAD
UPLOAD: Final = Wait.UPLOAD
WHOLE: Final = Wait.WHOLE
RELAY: Final = Wait.RELAY
TUNNEL: Final = Wait.TUNNEL
DONE: Final = Wait.DONE
