"""A connection to a Redis server, with an estimate of the server's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import hiredis

from gateway.base.clock import Clock, wall_us
from gateway.base.errors import StoreError, StoreReplyError
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.redis.connection import SharedConnection
from gateway.stores.redis.pipe import Command, Pipe, is_noscript, needs_reconnect, reply_error
from gateway.stores.redis.script import Codec, decode_verdicts, server_now_us
from gateway.stores.redis.source import DECIDE, Script

LATE_SLACK_US: Final = 5_000
"""Margin for the error of the estimate of the server's clock."""


class ServerTime:
    """The latest time that the server's clock may show: an estimate that errs on the late side.

    An answer carries the server's time at some moment between sending and receiving, which bounds
    the distance between the two clocks from both sides; every answer narrows it. If one contradicts
    the rest, a clock was set or drifted, and only that answer is used.
    """

    __slots__ = ("_highest_us", "_lowest_us")

    def __init__(self) -> None:
        self._lowest_us: int | None = None
        self._highest_us = 0

    def latest_us(self, now_us: int) -> int | None:
        """Return the latest time the server's clock may show at `now_us` here; None if unknown."""
        return None if self._lowest_us is None else now_us + self._highest_us

    def observe(self, sent_us: int, received_us: int, server_us: int) -> None:
        """Update the estimate from one answer."""
        lowest_us = server_us - received_us
        highest_us = server_us - sent_us
        if self._lowest_us is not None:
            narrower_low = max(self._lowest_us, lowest_us)
            narrower_high = min(self._highest_us, highest_us)
            if narrower_low <= narrower_high:
                lowest_us, highest_us = narrower_low, narrower_high
        self._lowest_us = lowest_us
        self._highest_us = highest_us

    def forget(self) -> None:
        """Forget the estimate, since the next answer may come from another server."""
        self._lowest_us = None


class ClockedConnection:
    """A connection to one server, on which batches are sent.

    Args:
        connection: keeps the connection open.
        codec: encodes asks.
        deadline_us: how long callers wait; what the server reads later spends nothing. 0 lets it
            be spent however late.
        clock: this process's time.
    """

    __slots__ = ("_clock", "_codec", "_deadline_us", "_pipe", "connection", "server_time")

    def __init__(
        self, connection: SharedConnection, codec: Codec, deadline_us: int, clock: Clock
    ) -> None:
        self.connection = connection
        self.server_time = ServerTime()
        self._codec = codec
        self._deadline_us = deadline_us
        self._clock = clock
        self._pipe: Pipe | None = None

    def open(self) -> Pipe:
        """Return the open pipe; raises `StoreUnavailable` if there is none."""
        pipe = self.connection.pipe
        if pipe is not self._pipe:
            self._pipe = pipe
            self.server_time.forget()
            if pipe.clock_seen is not None:
                self.server_time.observe(*pipe.clock_seen)
        return pipe

    def encode(self, asks: Sequence[Ask], sent_us: int) -> list[bytes]:
        """Return the arguments of `DECIDE` on this lane; call `open` first."""
        latest_us = self.server_time.latest_us(sent_us)
        if latest_us is None:
            # The server's time is unknown before the first answer; calendars need it roughly.
            return self._codec.encode_asks(asks, 0, server_us=wall_us())
        return self._codec.encode_asks(asks, self.not_after_us(sent_us), server_us=latest_us)

    def not_after_us(self, sent_us: int) -> int:
        """Return the server time after which what is sent now is too late; 0 if unknown."""
        latest_us = self.server_time.latest_us(sent_us)
        if latest_us is None or not self._deadline_us:
            return 0
        return latest_us + self._deadline_us + LATE_SLACK_US

    def decode(self, asks: Sequence[Ask], sent_us: int, reply: Any, pipe: Pipe) -> list[Verdict]:
        """Return the verdicts in an answer of `DECIDE`.

        Raises:
            StoreTimeout: the server read the batch too late and spent nothing.
            StoreReplyError: the answer cannot be understood.
        """
        try:
            self.server_time.observe(sent_us, self._clock(), server_now_us(reply))
            return decode_verdicts(asks, reply)
        except StoreReplyError as error:
            pipe.drop(error)
            raise

    async def decide(self, asks: Sequence[Ask]) -> list[Verdict]:
        """Return the verdicts on a batch.

        Raises:
            StoreError: as `RedisStore.decide`.
        """
        pipe = self.open()
        sent_us = self._clock()
        reply = await run(pipe, DECIDE, self.encode(asks, sent_us))
        return self.decode(asks, sent_us, reply, pipe)


async def run(pipe: Pipe, script: Script, words: list[bytes]) -> Any:
    """Run a script; if the server does not know it, send it in the same call.

    Raises:
        StoreError: the server answered an error or the connection was lost.
    """
    reply = await pipe.call(by_digest(script, words))[0]
    if is_noscript(reply):
        reply = await pipe.call(by_source(script, words))[0]
    if isinstance(reply, hiredis.ReplyError):
        raise failed(pipe, reply)
    return reply


def by_digest(script: Script, words: list[bytes]) -> Command:
    """Return the call of a script that the server remembers."""
    return (b"EVALSHA", script.digest, *words)


def by_source(script: Script, words: list[bytes]) -> Command:
    """Return the call that includes the script: needs no SCRIPT LOAD, and is remembered too."""
    return (b"EVAL", script.source, *words)


def failed(pipe: Pipe, reply: Exception) -> StoreError:
    """Return the error of an answer; drop a pipe that a new one may fix."""
    error = reply_error(reply)
    if needs_reconnect(error):
        pipe.drop(error)
    return error
