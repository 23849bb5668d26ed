"""Counts in Redis or Valkey, shared by every gateway that uses the same domain.

Decisions are made by `lua/decide.lua` with the server's own clock: one call for a whole batch,
atomically. What goes over the wire is `redis_script`, how it gets there `redis_connection`.

A call that lay in a socket while the server was frozen spends nothing when the server gets to
it: every batch carries the server time after which nobody waits for it any more
(`ServerTime`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any, Final

import hiredis

from gateway.clock import Clock, monotonic_us
from gateway.errors import StoreError, StoreReplyError, StoreUnavailable
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.redis_address import parse_redis_url
from gateway.stores.redis_connection import (
    Command,
    Connection,
    Pipe,
    is_noscript,
    reply_error,
    worth_dropping,
)
from gateway.stores.redis_script import (
    DECIDE,
    GIVE_BACK,
    HEARTBEAT,
    Codec,
    Script,
    decode_verdicts,
    server_now_us,
)

LATE_SLACK_US: Final = 5_000
"""Margin for what the estimate of the server's clock may be off."""
MISSED_BEATS: Final = 3
"""After so many heartbeats without a word a gateway counts as gone."""
HEARTBEAT_S: Final = 2.0


class ServerTime:
    """What the server's clock shows now, at most: an estimate that errs on the late side.

    An answer tells the server's time at some moment between sending and receiving, which
    bounds the distance between the two clocks from both sides; every answer narrows it. If one
    contradicts the rest, a clock was set or drifted, and it alone is believed.
    """

    __slots__ = ("_highest_us", "_lowest_us")

    def __init__(self) -> None:
        self._lowest_us: int | None = None
        self._highest_us = 0

    def latest_us(self, now_us: int) -> int | None:
        """The latest that the server's clock may show at `now_us` here; None if unknown."""
        return None if self._lowest_us is None else now_us + self._highest_us

    def observe(self, sent_us: int, received_us: int, server_us: int) -> None:
        """Learn from one answer."""
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
        """The next answer may come from another server."""
        self._lowest_us = None


class _Lane:
    """A connection and what is known of the clock at its other end."""

    __slots__ = ("connection", "pipe", "server_time")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pipe: Pipe | None = None
        self.server_time = ServerTime()

    def open(self) -> Pipe:
        """The open pipe; raises `StoreUnavailable` if there is none."""
        pipe = self.connection.pipe
        if pipe is not self.pipe:
            self.pipe = pipe
            self.server_time.forget()
        return pipe


class RedisStore:
    """A `Store` in one Redis server.

    Args:
        url: `redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS (options as in
            redis-py: `ssl_ca_certs` and so on), or `unix://path`.
        domain: the namespace of this deployment's keys.
        deadline_us: how long callers wait for a batch. A batch that the server gets to later
            spends nothing. 0 lets it be spent however late.
        connections: how many connections batches are spread over.
        heartbeat_s: seconds between two signs of life, by which gateways count each other.
        clock: this process's time.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str,
        deadline_us: int = 20_000,
        connections: int = 1,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Clock = monotonic_us,
    ) -> None:
        if connections < 1:
            raise ValueError("a store needs at least one connection")
        address = parse_redis_url(url)
        sources = (DECIDE.source, GIVE_BACK.source)
        self._lanes = [_Lane(Connection(address, sources, clock=clock)) for _ in range(connections)]
        self._next = 0
        self._codec = Codec(domain)
        self._deadline_us = deadline_us
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._gateways_key = f"{domain}:gateways".encode()
        self._id = secrets.token_hex(8)
        self._gateways = 1
        self._heart: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RedisStore {', '.join(repr(lane.connection) for lane in self._lanes)}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""
        return any(lane.connection.is_ready for lane in self._lanes)

    @property
    def gateways(self) -> int:
        """How many gateways share this store, as last seen; at least 1."""
        return self._gateways

    async def start(self) -> None:
        """Connect in the background."""
        for lane in self._lanes:
            lane.connection.start()
        if self._heart is None:
            self._heart = asyncio.get_running_loop().create_task(self._beat())

    async def aclose(self) -> None:
        """Sign off and close; nothing may be asked afterwards."""
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heart
            self._heart = None
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(self._heartbeat_s / 4):
                await self._lane().open().call(("ZREM", self._gateways_key, self._id))[0]
        for lane in self._lanes:
            await lane.connection.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch, in one call.

        Raises:
            StoreUnavailable: not connected, or the server cannot serve; at once.
            StoreTimeout: the server got to the batch too late and spent nothing.
            StoreReplyError: the answer cannot be understood.
        """
        if not asks:
            return ()
        lane = self._lane()
        pipe = lane.open()
        sent_us = self._clock()
        not_after_us = 0
        if self._deadline_us:
            latest_us = lane.server_time.latest_us(sent_us)
            if latest_us is not None:
                not_after_us = latest_us + self._deadline_us + LATE_SLACK_US
        words = self._codec.encode_asks(asks, not_after_us)
        reply = await _run(pipe, DECIDE, words)
        try:
            lane.server_time.observe(sent_us, self._clock(), server_now_us(reply))
            return decode_verdicts(asks, reply)
        except StoreReplyError as error:
            pipe.drop(error)
            raise

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`; if that fails the ask stays spent: too little may pass, never more."""
        if not verdict.allowed or not ask.cost or not ask.limits:
            return
        with contextlib.suppress(StoreError):
            pipe = self._lane().open()
            await _run(pipe, GIVE_BACK, self._codec.encode_give_back(ask, verdict))

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Nothing that is counted here is held: all there was to keep is kept."""
        return verdict.allowed

    def _lane(self) -> _Lane:
        """The next connection in turn that works; any if none does."""
        lanes = self._lanes
        if len(lanes) == 1:
            return lanes[0]
        for _ in lanes:
            self._next = (self._next + 1) % len(lanes)
            if lanes[self._next].connection.is_ready:
                break
        return lanes[self._next]

    async def _beat(self) -> None:
        """Say now and then that this gateway is alive; find out how many are.

        A connection on which a beat is not answered by the next one leads nowhere (a server
        that vanished without a word looks like that) and is given up.
        """
        silence_ms = int(self._heartbeat_s * MISSED_BEATS * 1000)
        command = ("EVAL", HEARTBEAT.source, 1, self._gateways_key, self._id, silence_ms)
        while True:
            pause_s = self._heartbeat_s
            for lane in self._lanes:
                try:
                    pipe = lane.open()
                except StoreUnavailable:
                    # As soon as there is a connection, not a whole beat later.
                    pause_s = min(pause_s, 0.05)
                    continue
                count = await _answer_within(self._heartbeat_s, pipe, command)
                if type(count) is int:
                    self._gateways = max(count, 1)
            await asyncio.sleep(pause_s)


async def _answer_within(limit_s: float, pipe: Pipe, command: Command) -> object:
    """The answer to a command, or None; a pipe without any answer is dropped."""
    try:
        async with asyncio.timeout(limit_s):
            return await pipe.call(command)[0]
    except TimeoutError:
        pipe.drop(StoreUnavailable("the store stopped answering", "stalled"))
    except StoreError:
        pass
    return None


async def _run(pipe: Pipe, script: Script, words: list[bytes]) -> Any:
    """Run a script; one that the server does not know is sent along, in the same call.

    Raises:
        StoreError: the server answered an error or the connection was lost.
    """
    reply = await pipe.call((b"EVALSHA", script.digest, *words))[0]
    if is_noscript(reply):
        # EVAL works where SCRIPT LOAD is forbidden, and the server remembers it as well.
        reply = await pipe.call((b"EVAL", script.source, *words))[0]
    if isinstance(reply, hiredis.ReplyError):
        error = reply_error(reply)
        if worth_dropping(error):
            pipe.drop(error)
        raise error
    return reply
