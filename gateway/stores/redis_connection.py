"""One connection to a Redis server that many callers share, and that mends itself.

`Pipe` is the protocol: commands go out as they come, answers are matched in order. A caller
that gives up leaves its place in the queue, so its answer is read and thrown away and can
never be taken for another's. `Connection` keeps a `Pipe` open: it connects, introduces itself,
and after a loss tries again with growing, jittered pauses. Nobody waits for it: while there is
no connection, a call fails at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

import hiredis

from gateway.clock import Clock, monotonic_us
from gateway.errors import StoreError, StoreReplyError, StoreUnavailable
from gateway.stores.redis_address import RedisAddress

Command = tuple[bytes | int | str, ...]
"""A command with its arguments."""

US: Final = 1_000_000
CONNECT_TIMEOUT_S: Final = 2.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
STEADY_US: Final = US
"""A connection that lasted this long is replaced at once when lost; others after a pause."""
STALLED_US: Final = US
"""When the oldest answer is overdue by this much, the server does not seem to work."""
MAX_CALLS: Final = 512
"""Unanswered calls on one connection; more would only pile up memory and be too late."""

_UNAVAILABLE: Final = frozenset(
    {
        *("LOADING", "READONLY", "OOM", "BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN"),
        *("NOAUTH", "NOPERM", "WRONGPASS"),
        *("CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT"),
    }
)
"""Error codes by which a server says that it cannot serve now, or not us."""
_DROPPING: Final = frozenset({"readonly", "noauth", "wrongpass", "moved"})
"""Those that another connection may cure: the name may lead to the new primary by now."""
_CODE_INSIDE: Final = re.compile(r"-?\b(" + "|".join(sorted(_UNAVAILABLE)) + r")\b")
"""Redis before 7 wraps the error of a command in a script into one of its own."""


def _pack(command: Command) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub: one word
    return packed


def reply_error(error: Exception) -> StoreError:
    """What an error answer of the server means to the limiter."""
    text = str(error)
    code = text.split(" ", 1)[0]
    if code not in _UNAVAILABLE:
        inside = _CODE_INSIDE.search(text) if code == "ERR" else None
        if inside is None:
            return StoreReplyError(f"the store answered an error: {text[:200]}", "reply")
        code = inside[1]
    return StoreUnavailable(f"the store cannot serve: {code}", code.lower())


def is_noscript(reply: object) -> bool:
    """Whether the server does not know a script (any more)."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")


class Pipe(asyncio.Protocol):
    """Commands out, answers in, matched in order.

    Args:
        clock: for the age of unanswered calls.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reader = hiredis.Reader()
        self._calls: deque[tuple[asyncio.Future[Any], int]] = deque()
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: StoreError = StoreUnavailable("the connection to the store was lost")

    @property
    def oldest_us(self) -> int:
        """For how long the oldest call is without its answer."""
        return self._clock() - self._calls[0][1] if self._calls else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        # A cast, not an assertion: those of uvloop only behave like one.
        self._transport = cast("asyncio.Transport", transport)

    def call(self, *commands: Command) -> list[asyncio.Future[Any]]:
        """Send commands in one write; each future gets its answer, errors as values.

        Raises:
            StoreUnavailable: too many calls are unanswered, or the connection is gone.
        """
        if self._transport is None or self._transport.is_closing():
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
        self._transport.write(b"".join([_pack(command) for command in commands]))
        return futures

    def data_received(self, data: bytes) -> None:
        """Match answers to calls."""
        reader = self._reader
        calls = self._calls
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                if not calls:
                    self.drop(StoreReplyError("the store answered what nobody asked"))
                    return
                future = calls.popleft()[0]
                # Done already: its caller gave up, and this answer is nobody's.
                if not future.done():
                    future.set_result(reply)
        except hiredis.HiredisError:
            self.drop(StoreReplyError("the store does not speak the Redis protocol"))

    def drop(self, error: StoreError) -> None:
        """Close now; whoever waits for an answer gets `error`."""
        self._error = error
        if self._transport is not None:
            self._transport.abort()
        self._fail_calls()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended; the outcome of what is unanswered is not known."""
        self._fail_calls()
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail_calls(self) -> None:
        while self._calls:
            future = self._calls.popleft()[0]
            if not future.done():
                future.set_exception(self._error)
                # Several commands of one introduction fail together; one is looked at.
                future.exception()


class Connection:
    """Keeps one `Pipe` to a server open.

    Args:
        address: the server.
        scripts: sources that it is asked to remember after connecting.
        clock: this process's time.
    """

    def __init__(
        self, address: RedisAddress, scripts: Sequence[bytes] = (), *, clock: Clock = monotonic_us
    ) -> None:
        self._address = address
        self._scripts = scripts
        self._clock = clock
        self._pipe: Pipe | None = None
        self._task: asyncio.Task[None] | None = None
        self._why = StoreUnavailable("the store is not connected yet", "not_connected")

    def __repr__(self) -> str:
        state = "open" if self._pipe is not None else f"down ({self._why.reason})"
        return f"<redis {self._address} {state}>"

    @property
    def is_ready(self) -> bool:
        """Whether a call would probably be answered now."""
        return self._pipe is not None and self._pipe.oldest_us < STALLED_US

    @property
    def pipe(self) -> Pipe:
        """The open pipe.

        Raises:
            StoreUnavailable: there is none; the reason is that of the last attempt.
        """
        if self._pipe is None:
            # A new one each time: an exception raised twice would grow its traceback.
            raise StoreUnavailable(str(self._why), self._why.reason)
        return self._pipe

    def start(self) -> None:
        """Begin to connect, in the background."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_open())

    async def aclose(self) -> None:
        """Close for good."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _keep_open(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            since_us = self._clock()
            try:
                await self._serve()
            except StoreError as error:
                self._why = StoreUnavailable(str(error), error.reason)
            else:
                self._why = StoreUnavailable("the connection to the store was lost")
                if self._clock() - since_us >= STEADY_US:
                    pause_s = FIRST_PAUSE_S
                    continue
            # Jitter keeps a fleet of gateways from coming back all at once.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _serve(self) -> None:
        """Connect and stay until the connection is lost.

        Raises:
            StoreError: no usable connection came about.
        """
        pipe = Pipe(self._clock)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._open(pipe)
                await self._introduce(pipe)
            self._pipe = pipe
            await asyncio.shield(pipe.lost)
        except TimeoutError as error:
            raise StoreUnavailable(f"{self._address} does not answer", "connect") from error
        except OSError as error:
            message = f"{self._address} cannot be reached: {error.strerror or type(error).__name__}"
            raise StoreUnavailable(message, "connect") from error
        finally:
            self._pipe = None
            pipe.drop(StoreUnavailable("the connection to the store was closed"))

    async def _open(self, pipe: Pipe) -> None:
        loop = asyncio.get_running_loop()
        address = self._address
        if address.path:
            await loop.create_unix_connection(lambda: pipe, address.path)
        else:
            await loop.create_connection(lambda: pipe, address.host, address.port, ssl=address.tls)

    async def _introduce(self, pipe: Pipe) -> None:
        """Authenticate, choose the database, and let the server remember the scripts."""
        address = self._address
        commands: list[Command] = []
        if address.password:
            user = (address.username,) if address.username else ()
            commands.append(("AUTH", *user, address.password))
        if address.db:
            commands.append(("SELECT", address.db))
        must_succeed = len(commands)
        commands.append(("PING",))
        commands += [("SCRIPT", "LOAD", source) for source in self._scripts]
        replies = [await future for future in pipe.call(*commands)]
        for position, reply in enumerate(replies):
            if isinstance(reply, hiredis.ReplyError):
                error = reply_error(reply)
                # PING may be forbidden to the user and SCRIPT to everybody (proxies): neither
                # is needed. That the server is loading or wants a password is said to PING.
                if position < must_succeed:
                    raise StoreUnavailable("the store refused the login or database", error.reason)
                if position == must_succeed and error.reason not in {"noperm", "reply"}:
                    raise error


def worth_dropping(error: StoreError) -> bool:
    """Whether a new connection may cure what the server answered."""
    return error.reason in _DROPPING or type(error) is StoreReplyError
