"""Counts in Redis or Valkey, shared by every gateway that uses the same domain.

`lua/decide.lua` makes the decisions with the server's own clock: one call for a whole batch,
atomically. `script` encodes and decodes calls, `clocked_connection` and `connection` carry them;
`cluster` is the store that is spread over several servers.

A call that waited in a socket while the server was frozen spends nothing when the server reads it:
every batch carries the server time after which it is too late (`clocked_connection.ServerTime`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.redis.address import parse_redis_url, parse_sentinel_url
from gateway.stores.redis.clocked_connection import ClockedConnection, run
from gateway.stores.redis.connection import FixedPlace, ServerPlace, SharedConnection
from gateway.stores.redis.heartbeat import RedisHeartbeat
from gateway.stores.redis.ratio import RatioCodec, shared_policy
from gateway.stores.redis.script import Codec, held_part
from gateway.stores.redis.sentinel import Sentinels
from gateway.stores.redis.source import GIVE_BACK, RENEW, SCRIPTS
from gateway.stores.redis.url import SENTINEL
from gateway.stores.settings import StoreOptions, StoreSettings
from gateway.stores.urls import split_url


class RedisStore:
    """A `Store` in one Redis server, which may be the primary that Sentinels name.

    Args:
        url: `redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS (options as in
            redis-py: `ssl_ca_certs` and so on), `unix://path`, or
            `redis+sentinel://host[:port][,...]/service[/db]`; for `?ratio=...` see `ratio`.
        domain: see `StoreSettings`.
        connections: how many connections batches are spread over.
        options: see `StoreSettings`.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str,
        connections: int = 1,
        **options: Unpack[StoreOptions],
    ) -> None:
        settings = StoreSettings(domain, **options)
        if connections < 1:
            raise ValueError("a store needs at least one connection")
        place = place_of(url)
        policy = shared_policy(url)
        # What is counted together with ratio's servers is counted in their way.
        self.counts_debits = not policy
        self._codec = RatioCodec(domain, policy) if policy else Codec(domain)
        self._lanes = [
            ClockedConnection(
                SharedConnection(place, SCRIPTS, clock=settings.clock),
                self._codec,
                settings.deadline_us,
                settings.clock,
            )
            for _ in range(connections)
        ]
        self._next = 0
        self._heartbeat = RedisHeartbeat(
            domain, settings.heartbeat_s, lambda: (self._lanes, self._lane())
        )

    def __repr__(self) -> str:
        return f"<RedisStore {', '.join(repr(lane.connection) for lane in self._lanes)}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""
        return any(lane.connection.is_ready for lane in self._lanes)

    @property
    def gateways(self) -> int:
        """How many gateways share this store, as last seen; at least 1."""
        return self._heartbeat.gateways

    async def start(self) -> None:
        """Connect in the background."""
        for lane in self._lanes:
            lane.connection.start()
        self._heartbeat.start()

    async def aclose(self) -> None:
        """Sign off and close; nothing may be asked afterwards."""
        await self._heartbeat.aclose()
        for lane in self._lanes:
            await lane.connection.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch, in one call.

        Raises:
            StoreUnavailable: not connected, or the server cannot serve; immediately.
            StoreTimeout: the server read the batch too late and spent nothing.
            StoreReplyError: the answer cannot be understood.
        """
        if not asks:
            return ()
        return await self._lane().decide(asks)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`; if that fails the ask stays spent: too little may pass, never more.

        Raises:
            StoreUnavailable: not connected, or the server cannot serve.
        """
        if verdict.allowed and ask.cost and ask.limits:
            pipe = self._lane().open()
            await run(pipe, GIVE_BACK, self._codec.encode_give_back(ask, verdict))

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what an allowed ask holds for another lease; see `Store.renew`."""
        held, its_verdict = held_part(ask, verdict)
        if not held.limits or not verdict.allowed:
            return verdict.allowed
        pipe = self._lane().open()
        words = self._codec.encode_renew(held, its_verdict)
        return bool(await run(pipe, RENEW, words) == len(held.limits))

    def _lane(self) -> ClockedConnection:
        """Return the next connection in turn that works; any if none does."""
        lanes = self._lanes
        if len(lanes) == 1:
            return lanes[0]
        for _ in lanes:
            self._next = (self._next + 1) % len(lanes)
            if lanes[self._next].connection.is_ready:
                break
        return lanes[self._next]


def place_of(url: str) -> ServerPlace:
    """Return the place of the server that a URL of one server or of Sentinels leads to."""
    if _scheme(url) in SENTINEL.schemes:
        return Sentinels(*parse_sentinel_url(url))
    return FixedPlace(parse_redis_url(url))


def database_of(url: str) -> int:
    """Return the number of the database that a URL of one server or of Sentinels names."""
    if _scheme(url) in SENTINEL.schemes:
        return parse_sentinel_url(url).server.db
    return parse_redis_url(url).db


def _scheme(url: str) -> str:
    return split_url(url).scheme
