"""Counts in a ratio server, which is used through its own protocol.

ratio has one method. It takes an owner and a resource, counts the call against the server's only
limit, and answers yes or no. It reports neither what is left nor when to retry, and it can neither
undo a call nor query without counting. So:

- A cost of n is n calls, which all must be admitted.
- `remaining` and `retry_after` are bounds: at most the limit minus this call, and at most the whole
  window.
- `give_back` does nothing: too few requests may pass then, never too many.
- A probe is a health check, which is not counted. A server without health checks, such as ratio's
  own, counts as healthy until a question fails; then a question about an unused key shows when it
  decides again.

`gateway.systems.ratio.capabilities` lists what such a server does not support.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Final, Literal

import grpc
import grpc.aio

from gateway.base.clock import US, Clock, monotonic_us
from gateway.base.errors import StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.base.tasks import Background, Tasks
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.systems.ratio.messages import (
    METHOD,
    OK,
    OVER_LIMIT,
    SERVICE,
    DecodeError,
    RatioQuestion,
    read_code,
    write_question,
)
from gateway.systems.ratio.store_url import parse_ratio_url

START_WAIT_S: Final = 1.0
MAX_CALLS: Final = 64
"""The most calls of one ask: a higher cost never passes."""
STALE_US: Final = 2_000_000
"""A connection with unanswered calls over which nothing arrived for so long is replaced: a host
that vanished does not close its connections.
"""
NOTHING: Final = "nothing"
"""The resource of a question that only tests the server; no key is converted to it."""
SERVING: Final = b"\x08\x01"
"""A health check's answer, `grpc.health.v1.HealthCheckResponse` with `SERVING`."""

_OPTIONS: Final[list[tuple[str, int]]] = [
    # A limiter is called directly, even if the environment names an HTTP proxy.
    ("grpc.enable_http_proxy", 0),
    # A call that was sent may have been counted, so the gRPC library must not repeat it.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    ("grpc.max_receive_message_length", 4_096),
    # Each store has its own connections, which it closes.
    ("grpc.use_local_subchannel_pool", 1),
]

_Call = grpc.aio.UnaryUnaryCall[bytes, bytes]
_Method = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]


class RatioStore:
    """A `Store` in one ratio server, or in a gateway with a ratio listener.

    Args:
        url: `ratio://host:port?owner=...`; the default owner of all questions is the domain.
        domain: the namespace of this deployment's keys.
        deadline_us: how long callers wait for a batch, also sent to the server; 0 for no bound.
        clock: this process's time.

    Raises:
        ValueError: the URL cannot be used.
    """

    is_told_afterwards: Literal[False] = False

    def __init__(
        self, url: str, *, domain: str, deadline_us: int = 20_000, clock: Clock = monotonic_us
    ) -> None:
        self._target, owner = parse_ratio_url(url)
        self._owner = owner or domain
        self._deadline_s = deadline_us / US or None
        self._clock = clock
        self._link: _RatioConnection | None = None
        self._is_closed = False
        self._unheard_since_us = 0
        self._has_failed = False
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<RatioStore {self._target} {'open' if self.is_ready else 'down'}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""
        return self._link is not None and self._link.is_ready

    @property
    def gateways(self) -> int:
        """Always 1: a ratio server does not know which gateways share it."""
        return 1

    async def start(self) -> None:
        """Connect in the background; wait for that if the server is reachable."""
        if self._link is None:
            self._link = _RatioConnection(self._target)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_WAIT_S):
                    await self._link.is_tried.wait()

    async def aclose(self) -> None:
        """Close the connection; no calls may follow."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()
        await self._tasks.finish(1)

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch; all of its calls are sent concurrently.

        Raises:
            StoreUnavailable: not connected, or the server cannot decide.
            StoreTimeout: the server did not answer in time.
            StoreReplyError: its answer is not valid in ratio's protocol.
        """
        if not asks:
            return ()
        link = self._current()
        under_way: list[tuple[Ask, Sequence[_Call]]] = []
        try:
            for ask in asks:
                calls = self._calls(link, ask)
                under_way.append((ask, calls))
            return [
                _verdict(
                    ask, is_allowed=all([await self._is_allowed(link, call, ask) for call in calls])
                )
                if calls
                else _never(ask)
                for ask, calls in under_way
            ]
        finally:
            for _, calls in under_way:
                for call in calls:
                    call.cancel()

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Do nothing: a ratio server cannot undo a call."""

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Return whether it was admitted: this store has no limits with leases."""
        return verdict.allowed

    def _current(self) -> _RatioConnection:
        """Return the connection, replaced if it does not work."""
        link, now_us = self._link, self._clock()
        if link is None:
            reason = "closed" if self._is_closed else "not_connected"
            raise StoreUnavailable("the store is not connected", reason)
        if not self._unheard_since_us:
            self._unheard_since_us = now_us
        elif now_us - self._unheard_since_us > STALE_US:
            self._tasks.start(link.aclose())
            link = self._link = _RatioConnection(self._target)
            self._unheard_since_us = now_us
        return link

    def _calls(self, link: _RatioConnection, ask: Ask) -> Sequence[_Call]:
        """Return the calls of an ask; none if it can never pass.

        Raises:
            StoreReplyError: it has several limits, which cannot be spent as a whole.
        """
        if ask.cost == 0:
            return (link.check(b"", timeout=self._deadline_s),)
        if len(ask.limits) != 1:
            raise StoreReplyError("a ratio server checks one limit at a time", "limits")
        if ask.cost > min(ask.limits[0].count, MAX_CALLS):
            return ()
        question = RatioQuestion(self._owner, resource_of(ask.limits[0], ask.keys[0]))
        data = write_question(question)
        return [link.ask(data, timeout=self._deadline_s) for _ in range(ask.cost)]

    async def _is_allowed(self, link: _RatioConnection, call: _Call, ask: Ask) -> bool:
        if ask.cost == 0:
            await self._look(link, call)
            return True
        return await self._code(call) == OK

    async def _look(self, link: _RatioConnection, check: _Call) -> None:
        """Return if the server can decide, as far as this can be detected."""
        try:
            data = await self._data(check)
        except StoreReplyError:
            # ratio has no health checks, but a gRPC server is there. Only a question shows whether
            # it has its Redis, and is sent if an earlier one failed.
            if self._has_failed:
                data = write_question(RatioQuestion(self._owner, NOTHING))
                await self._code(link.ask(data, timeout=self._deadline_s))
            return
        if data != SERVING:
            raise StoreUnavailable("the server reports that it is not serving", "not_serving")

    async def _code(self, call: _Call) -> int:
        """Return the answer to a question."""
        is_answered = False
        try:
            code = read_code(await self._data(call))
            is_answered = code in (OK, OVER_LIMIT)
        except DecodeError as error:
            raise StoreReplyError(f"the answer is none of ratio's: {error}") from error
        finally:
            self._has_failed = not is_answered
        if not is_answered:
            raise StoreReplyError("the server cannot decide")
        return code

    async def _data(self, call: _Call) -> bytes:
        """Return the data of the answer to a call.

        Raises:
            StoreError: there is no answer.
        """
        try:
            data = await call
        except grpc.aio.AioRpcError as error:
            code = error.code()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise StoreTimeout("no answer within the deadline") from error
            self._unheard_since_us = 0
            if code is not grpc.StatusCode.UNIMPLEMENTED:
                label = code.name.lower()
                raise StoreUnavailable(error.details() or label, label) from error
            raise StoreReplyError("the server is no ratio server", "unimplemented") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The call was cancelled with its connection, not this task.
            raise StoreUnavailable("the connection was given up", "connection_lost") from None
        self._unheard_since_us = 0
        return data


class _RatioConnection:
    """A connection that reconnects whenever it is lost."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self.ask: _Method = self._channel.unary_unary(f"/{SERVICE}/{METHOD}")
        self.check: _Method = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        self.is_ready = False
        self.is_tried = asyncio.Event()
        self._watching = Background(self._watch)
        self._watching.start()

    async def _watch(self) -> None:
        """Keep it connected, and note its state."""
        while True:
            state = self._channel.get_state(try_to_connect=True)
            self.is_ready = state is grpc.ChannelConnectivity.READY
            if self.is_ready or state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                self.is_tried.set()
            await self._channel.wait_for_state_change(state)

    async def aclose(self) -> None:
        """Close it; calls in progress are cancelled."""
        self.is_ready = False
        await self._watching.end()
        await self._channel.close()


def resource_of(limit: Limit, key: str) -> str:
    """Return the resource for a key of a limit; a ratio server only counts by texts.

    Different keys never have the same text: a scope has no `#`, and only quoted keys begin with a
    quote.
    """
    scope = limit.scope.replace("%", "%25").replace("#", "%23")
    if key.startswith('"') or not _is_text(key):
        key = json.dumps(key)
    return f"{scope}#{key}"


def _is_text(key: str) -> bool:
    """Return whether it is valid UTF-8: bytes that are not are kept as surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _verdict(ask: Ask, *, is_allowed: bool) -> Verdict:
    """Return the verdict for an answer of yes or no."""
    retry_after_us = 0 if is_allowed else max(limit.period_us for limit in ask.limits)
    decisions = [
        Decision(
            is_allowed,
            0,
            retry_after_us,
            limit.count,
            limit.count - ask.cost if is_allowed else 0,
            limit.period_us,
            0,
        )
        for limit in ask.limits
    ]
    return Verdict(is_allowed, 0, retry_after_us, decisions)


def _never(ask: Ask) -> Verdict:
    decisions = [Decision(False, 0, NEVER, limit.count, limit.count, 0, 0) for limit in ask.limits]
    return Verdict(False, 0, NEVER, decisions)
