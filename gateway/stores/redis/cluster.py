"""Counts in a Redis Cluster, or one of Valkey: each slot's by the server that serves it.

A batch is one call of the script for each slot that it touches, and all calls of one server are
sent in one write. The limits of an ask that count the same identity share a slot, and are decided
on together. If they count different ones, each slot decides on its own limits, and what was taken
for an ask that was refused elsewhere is given back before the caller gets its verdict: for one
round trip other requests may find less than there is, never more.

Redirections are followed: `MOVED` to the server that has the slot now, `ASK` for this call only. A
slot that is moving has its keys on two servers; if that prevents a call (`TRYAGAIN`), every key is
asked for on its own, which is never refused for that reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Unpack

from gateway.base.clock import US
from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Tasks
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.redis.address import RedisAddress, parse_cluster_url
from gateway.stores.redis.call import RoutedCall, send, settle
from gateway.stores.redis.clocked_connection import ClockedConnection
from gateway.stores.redis.connection import FixedPlace, SharedConnection
from gateway.stores.redis.heartbeat import RedisHeartbeat
from gateway.stores.redis.nodes import ClusterNode, Nodes
from gateway.stores.redis.script import Codec, held_part
from gateway.stores.redis.slots import (
    Answer,
    Joined,
    SlotPart,
    each_key_of,
    join,
    pieces_of,
    slot_of,
    slots_of,
    split,
    split_by_key,
)
from gateway.stores.redis.source import DECIDE, GIVE_BACK, RENEW, SCRIPTS
from gateway.stores.settings import StoreOptions, StoreSettings

NO_DEADLINE_S: Final = 2.0
"""How long a call without a deadline waits for a connection to a server it is redirected to."""


class _Undo(NamedTuple):
    call: RoutedCall
    ask: Ask
    verdict: Verdict


class RedisClusterStore:
    """A `ShardedStore` in a Cluster.

    Args:
        url: `redis+cluster://[[user]:password@]host[:port][,host[:port]...]`, the nodes that are
            asked for the others; `rediss+cluster://` for TLS.
        domain: see `StoreSettings`.
        options: see `StoreSettings`.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str,
        **options: Unpack[StoreOptions],
    ) -> None:
        settings = StoreSettings(domain, **options)
        self.counts_debits = True
        self._codec = Codec(domain)
        self._deadline_us = settings.deadline_us
        self._clock = settings.clock
        self._nodes = Nodes(parse_cluster_url(url), self._make_lane)
        self._heartbeat = RedisHeartbeat(domain, settings.heartbeat_s, self._lanes)
        self._tasks = Tasks()
        self._within_s = settings.deadline_us / US or NO_DEADLINE_S

    def __repr__(self) -> str:
        return f"<RedisClusterStore {self._nodes!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now: most of the slots are served."""
        return self._nodes.is_ready

    @property
    def gateways(self) -> int:
        """How many gateways share this store, as last seen; at least 1."""
        return self._heartbeat.gateways

    def shard(self, ask: Ask) -> Hashable:
        """Return the servers that an ask needs: asks of one shard are answered or fail together."""
        names = {self._nodes.name_of(slot) for slot in slots_of(ask)}
        return names.pop() if len(names) == 1 else frozenset(names)

    async def start(self) -> None:
        """Connect in the background."""
        self._nodes.start()
        self._heartbeat.start()

    async def aclose(self) -> None:
        """Sign off and close; nothing may be asked afterwards."""
        await self._tasks.finish(1)
        await self._heartbeat.aclose()
        await self._nodes.aclose()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch, with one call to each slot.

        Raises:
            StoreError: as `RedisStore.decide`, of any of the servers that are needed. The
                other servers' asks may have been counted.
        """
        if not asks:
            return ()
        joined = await self._ask(asks, split(asks))
        return _all(joined.verdicts)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`; what fails of it stays spent: too little may pass, never more.

        Raises:
            StoreError: as `RedisStore.give_back`, of any of the servers that are needed.
        """
        if verdict.allowed and ask.cost and ask.limits:
            error = await self._settle_undo(self._send_undo([(ask, verdict)]))
            if error is not None:
                raise error

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what an allowed ask holds for another lease; see `Store.renew`."""
        held, its_verdict = held_part(ask, verdict)
        if not held.limits or not verdict.allowed:
            return verdict.allowed
        calls = [
            RoutedCall(RENEW, slot, partial(self._encode_renew, piece, part))
            for slot, piece, part in each_key_of(held, its_verdict)
        ]
        send(self._nodes, calls)
        await settle(self._nodes, calls, self._within_s)
        for call in calls:
            if call.error is not None:
                raise call.error
        return all(call.reply == 1 for call in calls)

    # One batch.

    async def _ask(self, asks: Sequence[Ask], parts: Sequence[SlotPart]) -> Joined:
        """Send all parts together, and give back what belongs to refused asks."""
        sent_us = self._clock()
        calls = [
            RoutedCall(DECIDE, part.slot, partial(self._encode_asks, part.asks, sent_us))
            for part in parts
        ]
        send(self._nodes, calls)
        try:
            await settle(self._nodes, calls, self._within_s)
            answers = [
                await self._answer(part, call, sent_us)
                for part, call in zip(parts, calls, strict=True)
            ]
        except asyncio.CancelledError:
            self._abandon(asks, parts, calls, sent_us)
            raise
        joined = join(asks, parts, answers)
        self._undo(joined)
        return joined

    async def _answer(self, part: SlotPart, call: RoutedCall, sent_us: int) -> Answer:
        if call.error is not None and call.error.reason == "tryagain":
            joined = await self._ask(part.asks, split_by_key(part.asks))
            try:
                return _all(joined.verdicts)
            except StoreError as error:
                return error
        return self._decode(part, call, sent_us)

    def _decode(self, part: SlotPart, call: RoutedCall, sent_us: int) -> Answer:
        if call.error is not None:
            return call.error
        if not call.is_answered or call.node is None or call.pipe is None:
            return StoreUnavailable("the store has not answered", "unanswered")
        try:
            return call.node.lane.decode(part.asks, sent_us, call.reply, call.pipe)
        except StoreError as error:
            return error

    def _abandon(
        self,
        asks: Sequence[Ask],
        parts: Sequence[SlotPart],
        calls: Sequence[RoutedCall],
        sent_us: int,
    ) -> None:
        """Give back what one slot took for an ask of several, after the caller has given up."""
        for call in calls:
            call.look()
        answers = [
            self._decode(part, call, sent_us) for part, call in zip(parts, calls, strict=True)
        ]
        self._undo(join(asks, parts, answers))

    # Giving back.

    def _undo(self, joined: Joined) -> None:
        if joined.undo:
            self._tasks.start(self._finish_undo(self._send_undo(joined.undo)))

    def _send_undo(self, undo: Iterable[tuple[Ask, Verdict]]) -> list[_Undo]:
        """Send the undo immediately, so that the next request finds the cost given back."""
        undos = [
            _Undo(self._give_back_call(slot, piece, part), piece, part)
            for ask, verdict in undo
            for slot, piece, part in pieces_of(ask, verdict)
        ]
        send(self._nodes, [undo.call for undo in undos])
        return undos

    async def _finish_undo(self, undos: Sequence[_Undo]) -> None:
        await self._settle_undo(undos)

    async def _settle_undo(self, undos: Sequence[_Undo]) -> StoreError | None:
        """Wait for the answers; return the error, if there was one."""
        await settle(self._nodes, [undo.call for undo in undos], self._within_s)
        again = [
            self._give_back_call(slot, piece, part)
            for undo in undos
            if undo.call.error is not None and undo.call.error.reason == "tryagain"
            for slot, piece, part in each_key_of(undo.ask, undo.verdict)
        ]
        send(self._nodes, again)
        await settle(self._nodes, again, self._within_s)
        errors = [undo.call.error for undo in undos] + [call.error for call in again]
        return next((each for each in errors if each and each.reason != "tryagain"), None)

    def _give_back_call(self, slot: int, ask: Ask, verdict: Verdict) -> RoutedCall:
        return RoutedCall(GIVE_BACK, slot, partial(self._encode_give_back, ask, verdict))

    # Calls to a server.

    def _encode_asks(self, asks: Sequence[Ask], sent_us: int, node: ClusterNode) -> list[bytes]:
        return node.lane.encode(asks, sent_us)

    def _encode_give_back(self, ask: Ask, verdict: Verdict, node: ClusterNode) -> list[bytes]:
        return self._codec.encode_give_back(ask, verdict)

    def _encode_renew(self, ask: Ask, verdict: Verdict, node: ClusterNode) -> list[bytes]:
        return self._codec.encode_renew(ask, verdict)

    def _make_lane(self, address: RedisAddress) -> ClockedConnection:
        connection = SharedConnection(FixedPlace(address), SCRIPTS, clock=self._clock)
        return ClockedConnection(connection, self._codec, self._deadline_us, self._clock)

    def _lanes(self) -> tuple[list[ClockedConnection], ClockedConnection | None]:
        """Return all lanes, and the one where the gateways are counted."""
        counted_at = None
        with contextlib.suppress(StoreError):
            counted_at = self._nodes.owner(slot_of("gateways")).lane
        return [node.lane for node in self._nodes], counted_at


def _all(verdicts: Sequence[Verdict | StoreError]) -> list[Verdict]:
    """Return the verdicts; raise the first failure among them."""
    found: list[Verdict] = []
    for verdict in verdicts:
        if isinstance(verdict, StoreError):
            raise verdict
        found.append(verdict)
    return found
