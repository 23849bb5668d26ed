"""Reports in Redis or Valkey, so that any number of masters act as one.

`lua/report.lua` records them, a batch in one call; in a Cluster, one call for each slot. The time
is that of the master that asks, since it is compared with times of wall clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.base.clock import monotonic_us
from gateway.base.errors import StoreError, StoreReplyError, StoreUnavailable
from gateway.limits.paced_history import interval_us, window_us
from gateway.limits.rate import Limit
from gateway.stores.redis.address import RedisAddress, parse_cluster_url
from gateway.stores.redis.call import RoutedCall, send, settle
from gateway.stores.redis.clocked_connection import ClockedConnection, run
from gateway.stores.redis.connection import FixedPlace, SharedConnection
from gateway.stores.redis.nodes import ClusterNode, Nodes
from gateway.stores.redis.pipe import Pipe
from gateway.stores.redis.relay import AnyClusterServer, RedisRelay
from gateway.stores.redis.script import Codec, channel_name, scope_prefix, store_key
from gateway.stores.redis.slots import slot_of
from gateway.stores.redis.source import REPORT
from gateway.stores.redis.store import database_of, place_of
from gateway.stores.reports import Answer, Hear, Report

_TAGS: Final = {"paced_history": "rh", "token_bucket": "rt"}
"""The tag in keys of reports, in place of an algorithm's: nothing else can read them."""
CONNECT_S: Final = 2.0
"""How long a call waits for a connection to a server of a Cluster that it is redirected to."""
STALLED_US: Final = 1_000_000
"""While the oldest call has been unanswered for this long, no more are made."""
LOST_US: Final = 6_000_000
"""After this long without an answer the connection is dropped."""


class ReportCodec:
    """Encodes reports; caches what all reports of one limit have in common."""

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._limits: dict[int, tuple[Limit, bytes, tuple[bytes, ...]]] = {}

    def key_and_words(self, limit: Limit, key: str, at_us: int) -> tuple[bytes, list[bytes]]:
        """Return the Redis key of an identity, and the script's arguments for a time."""
        known = self._limits.get(id(limit))
        if known is None:
            tag = _TAGS[limit.algorithm]
            numbers = (limit.burst, interval_us(limit), window_us(limit))
            words = (tag.encode(), *(b"%d" % number for number in numbers))
            # The limit is kept, so no other object can get its id.
            known = (limit, scope_prefix(self._domain, limit.scope, tag), words)
            self._limits[id(limit)] = known
        return store_key(known[1], key), [b"%d" % at_us, *known[2]]

    def encode(self, pieces: Sequence[tuple[Limit, str, int]], now_us: int) -> list[bytes]:
        """Return number of keys, keys and arguments for `REPORT`."""
        keys: list[bytes] = []
        words: list[bytes] = [b"%d" % now_us]
        for piece in pieces:
            key, its_words = self.key_and_words(*piece)
            keys.append(key)
            words += its_words
        return [b"%d" % len(keys), *keys, *words]


class RedisReports:
    """`Reports` in one Redis server, which may be the primary that Sentinels name.

    Args:
        url: as of `RedisStore`.
        domain: the namespace of this deployment's keys.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(self, url: str, *, domain: str) -> None:
        self._domain = domain
        self._url = url
        self._words = ReportCodec(domain)
        self._connection = SharedConnection(place_of(url), (REPORT.source,))

    async def start(self) -> None:
        """Connect in the background."""
        self._connection.start()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.aclose()

    async def record(self, reports: Sequence[Report], now_us: int) -> Sequence[Answer]:
        """Record reports in one call; see `Reports.record`."""
        pieces = _pieces(reports)
        pipe = _working(self._connection)
        reply = await run(pipe, REPORT, self._words.encode(pieces, now_us))
        return _join(reports, _answers(reply, len(pieces)))

    def relay(self, name: str, hear: Hear) -> RedisRelay:
        """See `SharedReports.relay`; messages go out on the connection for reports."""
        channel = channel_name(self._domain, name, database_of(self._url))
        place = place_of(self._url)
        return RedisRelay(place, channel, hear, lambda: _working(self._connection))


class RedisClusterReports:
    """`Reports` in a Redis Cluster.

    Args:
        url: as of `RedisClusterStore`.
        domain: the namespace of this deployment's keys.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(self, url: str, *, domain: str) -> None:
        self._domain = domain
        self._words = ReportCodec(domain)
        self._codec = Codec(domain)
        self._seeds = parse_cluster_url(url)
        self._nodes = Nodes(self._seeds, self._make_lane)

    async def start(self) -> None:
        """Connect in the background."""
        self._nodes.start()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._nodes.aclose()

    async def record(self, reports: Sequence[Report], now_us: int) -> Sequence[Answer]:
        """Record reports with one call for each slot; see `Reports.record`.

        A server that does not answer affects only its own keys.
        """
        pieces = _pieces(reports)
        slots: dict[int, list[int]] = {}
        for number, (_, key, _) in enumerate(pieces):
            slots.setdefault(slot_of(key), []).append(number)

        def encode(numbers: Sequence[int]) -> list[bytes]:
            return self._words.encode([pieces[number] for number in numbers], now_us)

        def call(slot: int, numbers: Sequence[int]) -> RoutedCall:
            def encode_for(_: ClusterNode) -> list[bytes]:
                return encode(numbers)

            return RoutedCall(REPORT, slot, encode_for)

        found: list[Answer] = [0] * len(pieces)
        calls: dict[int, RoutedCall] = {}
        for slot, numbers in slots.items():
            try:
                _working(self._nodes.owner(slot).lane.connection)
            except StoreError as error:
                _put(found, numbers, [error] * len(numbers))
            else:
                calls[slot] = call(slot, numbers)
        send(self._nodes, list(calls.values()))
        await settle(self._nodes, list(calls.values()), CONNECT_S)
        for slot, one in calls.items():
            numbers = slots[slot]
            try:
                _put(found, numbers, _answers(_reply_of(one), len(numbers)))
            except StoreError as error:
                _put(found, numbers, [error] * len(numbers))
        return _join(reports, found)

    def relay(self, name: str, hear: Hear) -> RedisRelay:
        """Return a relay; a message to one server reaches the subscribers of all servers."""
        channel = channel_name(self._domain, name, 0)

        def find_pipe() -> Pipe:
            error: StoreError = StoreUnavailable("no server is connected", "not_connected")
            for node in self._nodes:
                try:
                    return _working(node.lane.connection)
                except StoreError as its_error:
                    error = its_error
            raise error

        return RedisRelay(AnyClusterServer(self._seeds), channel, hear, find_pipe)

    def _make_lane(self, address: RedisAddress) -> ClockedConnection:
        connection = SharedConnection(FixedPlace(address), (REPORT.source,))
        return ClockedConnection(connection, self._codec, 0, monotonic_us)


def _working(connection: SharedConnection) -> Pipe:
    """Return the open pipe of a connection.

    Raises:
        StoreUnavailable: there is none, or its server does not answer.
    """
    pipe = connection.pipe
    if pipe.oldest_us < STALLED_US:
        return pipe
    error = StoreUnavailable("the store stopped answering", "stalled")
    if pipe.oldest_us >= LOST_US:
        pipe.drop(error)
    raise error


def _pieces(reports: Sequence[Report]) -> list[tuple[Limit, str, int]]:
    """Return each limit of each report by itself."""
    return [
        (limit, key, report.at_us)
        for report in reports
        for limit, key in zip(report.limits, report.keys, strict=True)
    ]


def _put(found: list[Answer], numbers: Sequence[int], answers: Sequence[Answer]) -> None:
    for number, answer in zip(numbers, answers, strict=True):
        found[number] = answer


def _reply_of(call: RoutedCall) -> object:
    """Return the answer to a call.

    Raises:
        StoreError: it was not answered.
    """
    if call.error is not None:
        raise call.error
    if not call.is_answered:
        raise StoreUnavailable("the store has not answered", "unanswered")
    return call.reply


def _join(reports: Sequence[Report], found: Sequence[Answer]) -> list[Answer]:
    """Return for each report the latest answer of its limits; see `Reports.record`."""
    answers: list[Answer] = []
    at = 0
    for report in reports:
        own = found[at : at + len(report.limits)]
        at += len(own)
        latest = max((answer for answer in own if isinstance(answer, int)), default=0)
        error = next((answer for answer in own if isinstance(answer, StoreError)), None)
        answers.append(latest or error or 0)
    return answers


def _answers(reply: object, wanted: int) -> list[int]:
    """Return the script's answers.

    Raises:
        StoreReplyError: it is no answer of that script.
    """
    is_answer = type(reply) is list and len(reply) == wanted
    if not is_answer or not all(type(number) is int for number in reply):  # type: ignore[attr-defined]
        raise StoreReplyError("the script's answer is no list of times")
    return reply  # type: ignore[return-value]
