"""Throttr's records in Redis or Valkey, shared by every gateway that uses the same domain.

A script executes requests with the server's own clock, a whole batch in one call and each request
atomically. `records_codec` encodes them; connections, redirections and the deadline are those of
the store of limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from gateway.base.clock import US, Clock, monotonic_us
from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.stores.redis.address import RedisAddress, parse_cluster_url
from gateway.stores.redis.call import RoutedCall, send, settle
from gateway.stores.redis.clocked_connection import ClockedConnection, run
from gateway.stores.redis.connection import FixedPlace, ServerPlace, SharedConnection
from gateway.stores.redis.nodes import ClusterNode, Nodes
from gateway.stores.redis.pipe import Pipe
from gateway.stores.redis.records_codec import RecordCodec, decode, encode, record_tag
from gateway.stores.redis.script import Codec, server_now_us
from gateway.stores.redis.slots import slot_of_tag
from gateway.stores.redis.store import place_of
from gateway.stores.redis.url import CLUSTER
from gateway.stores.urls import split_url
from gateway.systems.throttr.codec import Request

PATIENCE: Final = 0.8
"""The share of the deadline that a Cluster gets: what was answered by then is used."""
NO_DEADLINE_S: Final = 2.0
"""How long a call without a deadline waits for an answer of a Cluster."""
LOST_US: Final = 2 * US
"""A connection with a call that has been unanswered for this long is dropped."""


class SharedRecords(Protocol):
    """Records that several gateways share."""

    async def start(self) -> None:
        """Connect in the background."""

    async def aclose(self) -> None:
        """Close; nothing may be asked afterwards."""

    @property
    def is_ready(self) -> bool:
        """Whether requests would probably be answered now."""

    async def answer(self, requests: Sequence[Request]) -> Sequence[bytes | None]:
        """Execute a batch of requests, in order.

        Returns:
            The answers; None for a request that may or may not have been executed, if others of the
            batch were.

        Raises:
            StoreError: there is no answer to any of them.
        """


def open_records(
    url: str, words: RecordCodec, *, deadline_us: int, clock: Clock = monotonic_us
) -> SharedRecords:
    """Return the records of one version in the Redis of a URL; they connect when started.

    Args:
        url: as for the store of limits.
        words: encodes the requests, with the domain of the records.
        deadline_us: how long callers wait; what the server reads later does nothing.
        clock: this process's time.

    Raises:
        ValueError: the URL cannot be used.
    """
    if split_url(url).scheme in CLUSTER.schemes:
        return ClusterRecords(url, words, deadline_us=deadline_us, clock=clock)
    return RedisRecords(url, words, deadline_us=deadline_us, clock=clock)


class _RecordScripts:
    """What one server and a Cluster have in common.

    Args:
        words: encodes the requests.
        deadline_us: how long callers wait.
        clock: this process's time.
    """

    def __init__(self, words: RecordCodec, deadline_us: int, clock: Clock) -> None:
        self._words = words
        self._deadline_us = deadline_us
        self._clock = clock

    def _make_lane(self, place: ServerPlace) -> ClockedConnection:
        connection = SharedConnection(place, (self._words.script.source,), clock=self._clock)
        return ClockedConnection(connection, Codec(""), self._deadline_us, self._clock)

    def _encode(
        self, requests: Sequence[Request], lane: ClockedConnection, sent_us: int
    ) -> list[bytes]:
        return encode(self._words, requests, lane.not_after_us(sent_us))

    def _decode(
        self,
        requests: Sequence[Request],
        lane: ClockedConnection,
        sent_us: int,
        pipe: Pipe,
        reply: object,
    ) -> list[bytes]:
        """Return the answers in a reply.

        Raises:
            StoreTimeout: the server read the batch too late and did nothing.
            StoreReplyError: the reply cannot be understood.
        """
        try:
            lane.server_time.observe(sent_us, self._clock(), server_now_us(reply))
            return decode(self._words, requests, reply)
        except StoreReplyError as error:
            pipe.drop(error)
            raise


class RedisRecords(_RecordScripts):
    """`SharedRecords` in one server, which may be the primary that Sentinels name.

    Args:
        url: as for `RedisStore`.
        words: encodes the requests.
        deadline_us: how long callers wait for a batch.
        clock: this process's time.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(self, url: str, words: RecordCodec, *, deadline_us: int, clock: Clock) -> None:
        super().__init__(words, deadline_us, clock)
        self._lane = self._make_lane(place_of(url))

    def __repr__(self) -> str:
        return f"<RedisRecords {self._lane.connection!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether requests would probably be answered now."""
        return self._lane.connection.is_ready

    async def start(self) -> None:
        """Connect in the background."""
        self._lane.connection.start()

    async def aclose(self) -> None:
        """Close; nothing may be asked afterwards."""
        await self._lane.connection.aclose()

    async def answer(self, requests: Sequence[Request]) -> Sequence[bytes | None]:
        """Execute a batch of requests in one call; see `SharedRecords`."""
        lane = self._lane
        pipe = lane.open()
        _give_up_lost(pipe)
        sent_us = self._clock()
        reply = await run(pipe, self._words.script, self._encode(requests, lane, sent_us))
        return self._decode(requests, lane, sent_us, pipe, reply)


class ClusterRecords(_RecordScripts):
    """`SharedRecords` in a Redis Cluster: each record by the server of its slot.

    Each record in a batch gets a call of its own, so no call has keys in two places.

    Args:
        url: as for `RedisClusterStore`.
        words: encodes the requests.
        deadline_us: how long callers wait for a batch.
        clock: this process's time.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(self, url: str, words: RecordCodec, *, deadline_us: int, clock: Clock) -> None:
        super().__init__(words, deadline_us, clock)
        self._nodes = Nodes(parse_cluster_url(url), self._make_node_lane)
        self._within_s = deadline_us * PATIENCE / US or NO_DEADLINE_S

    def __repr__(self) -> str:
        return f"<ClusterRecords {self._nodes!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether most records are available now."""
        return self._nodes.is_ready

    async def start(self) -> None:
        """Connect in the background."""
        self._nodes.start()

    async def aclose(self) -> None:
        """Close; nothing may be asked afterwards."""
        await self._nodes.aclose()

    async def answer(self, requests: Sequence[Request]) -> Sequence[bytes | None]:
        """Execute a batch of requests; see `SharedRecords`.

        Shortly before the deadline, the answers that have arrived are used.
        """
        sent_us = self._clock()
        parts: dict[bytes, _RecordRequests] = {}
        for place, request in enumerate(requests):
            part = parts.get(request[1])
            if part is None:
                part = parts[request[1]] = _RecordRequests([], [])
            part.requests.append(request)
            part.places.append(place)
        calls = [self._call(key, part, sent_us) for key, part in parts.items()]
        send(self._nodes, calls)
        await self._settle(calls)
        answers: list[bytes | None] = [None] * len(requests)
        failure: StoreError | None = None
        for call, part in zip(calls, parts.values(), strict=True):
            try:
                found = self._read(call, part, sent_us)
            except StoreError as error:
                failure = error
                continue
            for place, answer in zip(part.places, found, strict=True):
                answers[place] = answer
        if failure is not None and all(answer is None for answer in answers):
            raise failure
        return answers

    async def _settle(self, calls: Sequence[RoutedCall]) -> None:
        try:
            async with asyncio.timeout(self._within_s):
                await settle(self._nodes, calls, self._within_s)
        except TimeoutError:
            for call in calls:
                call.look()
                if not call.is_answered and call.pipe is not None:
                    _give_up_lost(call.pipe)

    def _read(self, call: RoutedCall, part: _RecordRequests, sent_us: int) -> list[bytes]:
        if call.error is not None:
            raise call.error
        if not call.is_answered or call.node is None or call.pipe is None:
            raise StoreTimeout("no answer within the deadline")
        return self._decode(part.requests, call.node.lane, sent_us, call.pipe, call.reply)

    def _call(self, key: bytes, part: _RecordRequests, sent_us: int) -> RoutedCall:
        slot = slot_of_tag(record_tag(key))
        encode_for = partial(self._encode_for, part.requests, sent_us)
        return RoutedCall(self._words.script, slot, encode_for)

    def _encode_for(
        self, requests: Sequence[Request], sent_us: int, node: ClusterNode
    ) -> list[bytes]:
        return self._encode(requests, node.lane, sent_us)

    def _make_node_lane(self, address: RedisAddress) -> ClockedConnection:
        return self._make_lane(FixedPlace(address))


class _RecordRequests(NamedTuple):
    """Requests for one record, and their positions in the batch."""

    requests: list[Request]
    places: list[int]


def _give_up_lost(pipe: Pipe) -> None:
    """Close a connection that has not answered for long: its other end may be gone."""
    if pipe.oldest_us > LOST_US:
        pipe.drop(StoreUnavailable("the store stopped answering", "stalled"))
