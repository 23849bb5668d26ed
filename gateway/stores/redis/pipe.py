"""One connection to a Redis server: commands are sent as they come, answers are matched in order.

A caller that gives up leaves its place in the queue, so its answer is read and discarded and can
never be taken for another's. `open_pipe` connects and authenticates; `connection` reconnects after
a loss.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import hiredis

from gateway.base.clock import Clock, monotonic_us
from gateway.base.errors import StoreError, StoreReplyError, StoreUnavailable
from gateway.stores.pipelining import Pipelining
from gateway.stores.redis.address import RedisAddress
from gateway.stores.tls_options import why

Command = tuple[bytes | int | str, ...]
"""A command with its arguments."""

CONNECT_TIMEOUT_S: Final = 2.0
MAX_CALLS: Final = 2048
"""Unanswered calls on one connection; more would only accumulate in memory and be too late."""

_UNAVAILABLE: Final = frozenset(
    {
        *("LOADING", "READONLY", "OOM", "BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN"),
        *("NOAUTH", "NOPERM", "WRONGPASS"),
        *("CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT"),
    }
)
"""Error codes by which a server says that it cannot serve now, or not this client."""
_DROPPING: Final = frozenset({"readonly", "noauth", "wrongpass", "moved"})
"""Codes that another connection may fix: the name may lead to the new primary by now."""
_CODE_INSIDE: Final = re.compile(r"-?\b(" + "|".join(sorted(_UNAVAILABLE)) + r")\b")
"""Redis before 7 wraps the error of a command in a script into one of its own."""


def _pack(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub: one word
    return packed


def reply_error(error: Exception) -> StoreError:
    """Return the store error for an error answer of the server."""
    text = str(error)
    code = text.split(" ", 1)[0]
    if code not in _UNAVAILABLE:
        inside = _CODE_INSIDE.search(text) if code == "ERR" else None
        if inside is None:
            return StoreReplyError(f"the store answered an error: {text[:200]}", "reply")
        code = inside[1]
    return StoreUnavailable(f"the store cannot serve: {code}", code.lower())


def is_noscript(reply: object) -> bool:
    """Return whether the server does not know a script (any more)."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")


class ClockReading(NamedTuple):
    """The time of a server, read between two times here; microseconds."""

    sent_us: int
    received_us: int
    server_us: int


class Pipe(Pipelining):
    """Sends commands and matches answers in order.

    Args:
        clock: for the age of unanswered calls.

    Attributes:
        clock_seen: the server's clock as it was when the connection was made, if known.
        evicts: the `maxmemory-policy` by which the server, when it is full, evicts keys that still
            count; empty if it does not, or if that is unknown.
        lost: done when the connection has ended.
        hear: handles messages of a channel, once that was subscribed to.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._reader = hiredis.Reader()
        self._calls: deque[tuple[asyncio.Future[Any], int]] = deque()
        self.clock_seen: ClockReading | None = None
        self.evicts = ""
        self.hear: Callable[[bytes], None] | None = None

    @property
    def oldest_us(self) -> int:
        """The age of the oldest unanswered call."""
        return self._clock() - self._calls[0][1] if self._calls else 0

    def call(self, *commands: Command) -> list[asyncio.Future[Any]]:
        """Send commands in one write; each future gets its answer, errors as values.

        Raises:
            StoreUnavailable: too many calls are unanswered, or the connection is gone.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise StoreUnavailable("the connection to the store was lost")
        if len(self._calls) >= MAX_CALLS:
            raise StoreUnavailable("too many calls are unanswered", "backlog")
        now_us = self._clock()
        loop = self.lost.get_loop()
        futures = []
        for _ in commands:
            future: asyncio.Future[Any] = loop.create_future()
            self._calls.append((future, now_us))
            futures.append(future)
        transport.write(b"".join([_pack(command) for command in commands]))
        return futures

    def data_received(self, data: bytes) -> None:
        """Match answers to calls."""
        reader = self._reader
        calls = self._calls
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                if self.hear is not None and type(reply) is list and reply[:1] == [b"message"]:
                    self.hear(reply[2])
                    continue
                if not calls:
                    self.drop(StoreReplyError("the store sent an answer without a request"))
                    return
                future = calls.popleft()[0]
                # Done already: its caller gave up, and this answer is dropped.
                if not future.done():
                    future.set_result(reply)
        except hiredis.HiredisError:
            self.drop(StoreReplyError("the store does not speak the Redis protocol"))

    def _take_unanswered(self) -> Iterator[asyncio.Future[Any]]:
        while self._calls:
            yield self._calls.popleft()[0]


async def open_pipe(
    address: RedisAddress, scripts: Sequence[bytes] = (), *, clock: Clock = monotonic_us
) -> Pipe:
    """Return a new connection, authenticated and with the scripts loaded.

    Args:
        address: the server.
        scripts: sources that it is asked to remember.
        clock: this process's time.

    Raises:
        StoreUnavailable: no usable connection was made.
    """
    pipe = Pipe(clock)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await _connect(pipe, address)
            await _introduce(pipe, address, scripts, clock)
    except TimeoutError as error:
        pipe.close()
        raise StoreUnavailable(f"{address} does not answer", "connect") from error
    except OSError as error:
        pipe.close()
        message = f"{address} cannot be reached: {why(error)}"
        raise StoreUnavailable(message, "connect") from error
    except BaseException:
        pipe.close()
        raise
    return pipe


async def _connect(pipe: Pipe, address: RedisAddress) -> None:
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(lambda: pipe, address.path)
    else:
        await loop.create_connection(
            lambda: pipe,
            address.host,
            address.port,
            ssl=address.tls,
            server_hostname=None if address.tls is None else address.tls_name,
        )


async def _introduce(
    pipe: Pipe, address: RedisAddress, scripts: Sequence[bytes], clock: Clock
) -> None:
    """Authenticate, select the database, query the server's settings, and load the scripts."""
    commands: list[Command] = []
    if address.password:
        user = (address.username,) if address.username else ()
        commands.append(("AUTH", *user, address.password))
    if address.db:
        commands.append(("SELECT", address.db))
    must_succeed = len(commands)
    commands += [("PING",), ("TIME",), ("INFO", "memory")]
    sent_us = clock()
    replies = [await future for future in pipe.call(*commands)]
    for position, reply in enumerate(replies):
        if isinstance(reply, hiredis.ReplyError):
            error = reply_error(reply)
            # PING may be forbidden to the user and SCRIPT to everyone (proxies): neither is
            # needed. PING reveals that the server is loading or requires a password.
            if position < must_succeed:
                raise StoreUnavailable("the store refused the login or database", error.reason)
            if position == must_succeed and error.reason not in {"noperm", "reply"}:
                raise error
    answer = replies[must_succeed + 1]
    if isinstance(answer, list) and len(answer) == 2:
        server_us = int(answer[0]) * 1_000_000 + int(answer[1])
        pipe.clock_seen = ClockReading(sent_us, clock(), server_us)
    pipe.evicts = _evicting_policy(replies[must_succeed + 2])
    # Not before: until then a server accepts only short words, and hangs up.
    for future in pipe.call(*[("SCRIPT", "LOAD", source) for source in scripts]):
        await future


def _evicting_policy(info: object) -> str:
    """Return the policy in `INFO memory` by which keys are evicted before they expire."""
    if not isinstance(info, bytes):
        return ""
    lines = (line.partition(":") for line in info.decode("ascii", "replace").splitlines())
    answer = {name: value for name, _, value in lines}
    # Without a bound on memory no policy applies.
    if answer.get("maxmemory", "0") == "0":
        return ""
    policy = answer.get("maxmemory_policy", "noeviction")
    return "" if policy == "noeviction" else policy


def needs_reconnect(error: StoreError) -> bool:
    """Return whether a new connection may fix the error that the server answered."""
    return error.reason in _DROPPING or type(error) is StoreReplyError
