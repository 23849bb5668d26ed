"""The limiter's end: a memory store that several processes of this machine use.

Batches are decided one after the other, in order of arrival, so that all workers together are one
limiter. What a worker holds is released when its connection ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from gateway.base.clock import Clock, monotonic_us
from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore
from gateway.stores.shared.frames import (
    DECIDE,
    FORGET,
    GIVE_BACK,
    LATE,
    PLAN,
    RENEW,
    RENEWED,
    FramePlan,
    Splitter,
    decode_asks,
    decode_plan,
    decode_undo,
    encode_verdicts,
    frame,
)

log = logging.getLogger(__name__)

MAX_PLANS: Final = 1 << 16
"""How many plans one worker may send before it forgets them: several times as many as it does."""
FIRST_LOOK: Final = 1024
"""How many slots a worker holds before the first search for slots that expired long ago."""


class WorkerSlots:
    """The slots that one worker holds for its requests in flight.

    Args:
        store: where they are held.
        clock: the store's.
    """

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[tuple[str, str, int], tuple[Limit, int, int]] = {}
        self._look_at = FIRST_LOOK

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, ask: Ask, verdict: Verdict, plan: FramePlan) -> None:
        """Keep the slots of an admitted ask, for one more lease."""
        now_us = self._clock()
        for place in plan.holding:
            limit = ask.limits[place]
            name = (limit.scope, ask.keys[place], verdict.decisions[place].receipt)
            self._held[name] = (limit, ask.each_cost[place], now_us + limit.period_us)
        if len(self._held) >= self._look_at:
            # Slots that were neither renewed nor given back become free by themselves.
            expired = [name for name, (_, _, until) in self._held.items() if until <= now_us]
            for name in expired:
                del self._held[name]
            self._look_at = max(FIRST_LOOK, 2 * len(self._held))

    def drop(self, ask: Ask, verdict: Verdict, plan: FramePlan) -> None:
        """Forget what was given back."""
        for place in plan.holding:
            receipt = verdict.decisions[place].receipt
            self._held.pop((ask.limits[place].scope, ask.keys[place], receipt), None)

    def release(self) -> None:
        """Give everything back, since the worker has stopped."""
        for (_, key, receipt), (limit, cost, _) in self._held.items():
            decision = Decision(True, 0, 0, 0, 0, 0, receipt)
            ask = Ask((limit,), (key,), cost, 0)
            self._store.give_back_now(ask, Verdict(True, 0, 0, (decision,)))
        self._held.clear()


class SharedServer(asyncio.Protocol):
    """One worker's connection, for `loop.create_unix_connection`.

    Args:
        store: decides.
        clock: the time of this machine, by which workers say how long they wait.
    """

    def __init__(self, store: MemoryStore, clock: Clock = monotonic_us) -> None:
        self._store = store
        self._clock = clock
        self._splitter = Splitter()
        self._plans: list[FramePlan] = []
        self._slots = WorkerSlots(store, clock)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the worker's connection."""
        # A cast, not an assertion: uvloop's transports only behave like one.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Decide on everything that arrived, and answer in one write."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        replies = []
        try:
            for one in self._splitter.feed(data):
                reply = self._serve(one[0], one[1:])
                if reply:
                    replies.append(reply)
        except Exception:
            # A fault of one worker must not affect the others.
            log.exception("A worker sent what cannot be understood; its connection is closed")
            transport.abort()
            return
        if replies:
            transport.write(b"".join(replies))

    def pause_writing(self) -> None:
        """Stop reading from a worker that does not read its answers."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that the worker held."""
        self._transport = None
        self._slots.release()

    def _serve(self, kind: int, content: bytes) -> bytes:
        if kind == DECIDE:
            return self._decide(content)
        if kind == PLAN:
            if len(self._plans) >= MAX_PLANS:
                raise ValueError("too many plans")
            self._plans.append(decode_plan(content))
            return b""
        if kind == FORGET:
            self._plans.clear()
            return b""
        if kind not in {GIVE_BACK, RENEW}:
            raise ValueError(f"there is no frame of kind {kind}")
        ask, verdict, plan = decode_undo(content, self._plans)
        if kind == GIVE_BACK:
            self._store.give_back_now(ask, verdict)
            self._slots.drop(ask, verdict, plan)
            return b""
        is_held = self._store.renew_now(ask, verdict)
        if is_held:
            self._slots.keep(ask, verdict, plan)
        return frame(RENEWED, b"\1" if is_held else b"\0")

    def _decide(self, content: bytes) -> bytes:
        not_after_us, asks = decode_asks(content, self._plans)
        if not_after_us and self._clock() > not_after_us:
            return frame(LATE)
        decide = self._store.decide_now
        verdicts = []
        for ask, plan in asks:
            verdict = decide(ask)
            verdicts.append(verdict)
            if plan.holding and verdict.allowed and ask.cost:
                self._slots.keep(ask, verdict, plan)
        return encode_verdicts(verdicts)
