"""The limiter as a library: what is asked of it, and how it is opened and closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import gateway
from gateway.base.errors import ConfigError, Problem
from gateway.base.tasks import becomes
from gateway.config.checking.check import Checked, check_data, check_text
from gateway.config.checking.load import load
from gateway.config.models.library import LimiterConfig
from gateway.library.asking import Asker, count
from gateway.library.decision import Decision, LimitExceeded
from gateway.library.decorator import LimitDecorator
from gateway.library.immediate import ImmediateLimit, immediate_limits
from gateway.library.policies import Policy
from gateway.library.questions import EVERYBODY, LimitQuestion, Names, Questions
from gateway.library.slots import Slot
from gateway.library.unawaited import Unawaited, coroutine_function
from gateway.limiter.decider import Outcome
from gateway.limiter.plan import Plan
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store
from gateway.stores.memory.store import MemoryStore
from gateway.wiring.limiter import decider_of, overrides_of, reader_of, store_of

log = logging.getLogger(__name__)

CONNECT_S: Final = 1.0
"""How long opening waits for a store that is not ready; then `on_store_error` has the word."""


class Limiter:
    """Decides whether requests, or calls, or anything else that has a key, may go.

    To be used as `async with Limiter(...) as limiter`, by any number of tasks of one event
    loop. It may be made anywhere, outside of a loop too, and opened again after it was closed.

    Args:
        policies: at least one.
        store: where counts live: a URL, a mapping of `url`, `deadline` and `share` as in the
            configuration, or a `Store` of your own, which is closed with the limiter.
        domain: the namespace of counts in a store that others use too.
        trusted_proxies: networks whose word for a client's address is believed, by the
            middlewares in `gateway.integrations`.
        ipv6_prefix: bits of an IPv6 address that they count together.

    Attributes:
        config: everything that was configured, checked and complete.
        metrics: what was counted; `gateway.observe.metrics.render(limiter.metrics)` shows it.

    Raises:
        ConfigError: with everything that is wrong.
    """

    config: LimiterConfig
    metrics: GatewayMetrics

    def __init__(
        self,
        *policies: Policy,
        store: str | Mapping[str, Any] | Store = "memory://",
        domain: str = "sluice",
        trusted_proxies: Sequence[str] = (),
        ipv6_prefix: int = 64,
    ) -> None:
        own_store = store if isinstance(store, Store) else None
        data = {
            "policies": _by_name(policies),
            "store": store if own_store is None else "memory://",
            "domain": domain,
            "trusted_proxies": trusted_proxies,
            "ipv6_prefix": ipv6_prefix,
        }
        self._prepare(check_data(data, name="Limiter", model=LimiterConfig), own_store)

    @classmethod
    def from_file(cls, path: str | Path, *, environ: Mapping[str, str] | None = None) -> Self:
        """A limiter with the policies of a YAML file or folder; a gateway's will do.

        Args:
            path: the file or folder.
            environ: the variables that `${VAR}` may refer to, such as `os.environ`.

        Raises:
            ConfigError: with everything that is wrong, each with its line and column.
        """
        return cls._from(load(Path(path), environ or {}, LimiterConfig))

    @classmethod
    def from_yaml(cls, text: str, *, environ: Mapping[str, str] | None = None) -> Self:
        """The same from text at hand, which cannot refer to secret files."""
        return cls._from(check_text(text, file="text", environ=environ, model=LimiterConfig))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """The same from plain data, as a JSON or TOML file would give it."""
        return cls._from(check_data(data, name="mapping", model=LimiterConfig))

    @classmethod
    def _from(cls, checked: Checked) -> Self:
        limiter = cls.__new__(cls)
        limiter._prepare(checked, None)  # noqa: SLF001 - what a constructor does
        return limiter

    def _prepare(self, checked: Checked, store: Store | None) -> None:
        assert isinstance(checked.config, LimiterConfig)
        for warning in checked.warnings:
            log.warning("%s", warning)
        self.config = checked.config
        self.metrics = GatewayMetrics(gateway.__version__)
        self._own_store = store
        self._make_store = store_of(self.config, self.metrics)
        self._overrides = overrides_of(self.config)
        self._questions = Questions(self.config.policies, self.metrics, self._overrides)
        self._open: Asker | None = None
        self._immediate: dict[Names, ImmediateLimit] = {}
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Limiter {state}, {', '.join(self.config.policies)}>"

    # Opening and closing.

    @property
    def is_open(self) -> bool:
        """Whether it may be asked."""
        return self._open is not None

    @property
    def is_ready(self) -> bool:
        """Whether the store would probably answer now; False while it is closed."""
        return self._open is not None and self._open.is_ready

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the store; one that is away is no error, then or later.

        Raises:
            RuntimeError: it is open already.
            ConfigError: the store's URL cannot be used.
        """
        if self.is_open:
            raise RuntimeError("the limiter is open already")
        await self._closed()
        store = self._own_store if self._own_store is not None else self._make_store()
        decider = decider_of(self.config, store, self.metrics.store("main"))
        self._open = Asker(decider, reader_of(self.config, self._overrides))
        if type(store) is MemoryStore:
            self._immediate = immediate_limits(self._questions, store)
        try:
            await self._open.start()
            await becomes(lambda: decider.is_ready, CONNECT_S)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Let go of the store, and of everything else; closing twice is harmless.

        If this is cancelled, the end comes all the same, in the background.

        Raises:
            RuntimeError: it was opened in another event loop, which still runs.
        """
        if self._open is not None:
            asker = self._open
            is_there = asker.is_in_this_loop()
            self._open, self._immediate = None, {}
            if is_there:
                # A task, since whoever gives up waiting for the end must not prevent it.
                self._closing = asyncio.get_running_loop().create_task(asker.aclose())
        await self._closed()

    async def _closed(self) -> None:
        if self._closing is not None:
            await asyncio.shield(self._closing)
            self._closing = None

    # Asking.

    @coroutine_function
    def acquire(
        self, key: str = EVERYBODY, cost: int = 1, *, policy: Names = None
    ) -> Coroutine[Any, Any, Decision]:
        """Decide on one request, at once: being over is a value, not an error.

        Args:
            key: whom to count: an address, a user, an API key, in any text. Limits that are
                `per all` count everybody together, whatever the key.
            cost: how much to take.
            policy: the policy's name, or several that must all agree (all are spent or none);
                may be left out if there is only one.

        Raises:
            ValueError: there is no such policy, or the cost is negative.
            RuntimeError: the limiter is not open.
        """
        return Unawaited(self._acquire(key, cost, policy))

    async def _acquire(self, key: str, cost: int, policy: Names) -> Decision:
        try:
            immediate = self._immediate.get(policy)
        except TypeError:  # a list
            immediate = None
        if immediate is not None:
            return immediate.acquire(key, cost)
        question = self._questions.question(policy)
        outcome = self.asker.begin(*question.ask(key, cost, 0))
        if not isinstance(outcome, Outcome):
            outcome = await outcome
        if cost:
            count(outcome)
        return Decision(outcome)

    @coroutine_function
    def peek(self, key: str = EVERYBODY, *, policy: Names = None) -> Coroutine[Any, Any, Decision]:
        """Look without taking: `remaining` says how many could pass now."""
        return Unawaited(self._acquire(key, 0, policy))

    @coroutine_function
    def wait(
        self,
        key: str = EVERYBODY,
        cost: int = 1,
        *,
        policy: Names = None,
        max_wait: float | None = None,
    ) -> Coroutine[Any, Any, Decision]:
        """Return when the turn of the request has come.

        Turns are given first come, first served: by the store, for everybody who shares it, if
        each of the policies has a `queue`; else among the callers in this limiter. Who is
        cancelled gives his turn back.

        Args:
            key: whom to count.
            cost: how much to take.
            policy: the policy's name, or several; see `acquire`.
            max_wait: how many seconds to wait at most; None for as long as the queues of the
                policies allow, and without a limit where a policy has none.

        Raises:
            LimitExceeded: there is no turn within that time; nothing was taken.
            ValueError, RuntimeError: as for `acquire`.
        """
        return Unawaited(self._wait(key, cost, policy, max_wait))

    async def _wait(self, key: str, cost: int, policy: Names, max_wait: float | None) -> Decision:
        question = self._questions.question(policy)
        outcome = await self.asker.wait(question, key, cost, max_wait)
        if not outcome.verdict.allowed:
            raise LimitExceeded(Decision(outcome))
        return Decision(outcome)

    @asynccontextmanager
    async def slot(
        self,
        key: str = EVERYBODY,
        cost: int = 1,
        *,
        policy: Names = None,
        max_wait: float | None = None,
    ) -> AsyncIterator[Slot]:
        """Be one of those that a limit such as `5 at once` lets through, within an `async with`.

        The slot is held while the block runs, however long, and released when it is left. What
        other limits of the policies have counted stays spent. If this process dies, its slots
        are free again when their `lease` is over.

        Args:
            key: whom to count.
            cost: how many slots to take.
            policy: the policy's name, or several; see `acquire`.
            max_wait: as for `wait`. Who waits is served in order within this limiter; slots
                that other processes release are found within a twentieth of a second.

        Raises:
            LimitExceeded: there is no slot within that time; nothing was taken.
            ValueError, RuntimeError: as for `acquire`; or no limit of the policies has slots.
        """
        question = self._questions.question(policy)
        if not question.has_leases:
            names = ", ".join(dict.fromkeys(rule.policy.name for rule in question.rules))
            raise ValueError(f"no limit of {names} is such as '5 at once'; use acquire or wait")
        async with self._hold(question, key, cost, max_wait) as slot:
            yield slot

    @asynccontextmanager
    async def _hold(
        self, question: LimitQuestion, key: str, cost: int, max_wait: float | None
    ) -> AsyncIterator[Slot]:
        outcome = await self.asker.wait(question, key, cost, max_wait)
        if not outcome.verdict.allowed:
            raise LimitExceeded(Decision(outcome))
        async with self.asker.holding(outcome) as slot:
            yield slot

    def give_back(self, decision: Decision) -> None:
        """Undo a decision: the request will not be made after all.

        Returns at once; the store hears of it in the background. What cannot be undone
        without letting too much through stays taken. A refusal, or a decision that was given
        back before, is left alone; so is any, after the limiter was closed.
        """
        outcome = decision.take_outcome()
        if outcome is not None and self._open is not None:
            self._open.give_back(outcome)

    def limit(
        self,
        *policies: str,
        key: str | Callable[..., str] = EVERYBODY,
        cost: int | Callable[..., int] = 1,
        max_wait: float | None = 0,
    ) -> LimitDecorator:
        """Hold every call of a coroutine function to policies.

        Args:
            policies: names; may be left out if there is only one.
            key: whom a call is counted for, or a function of its arguments that says so; all
                calls are counted together if left out.
            cost: what a call costs, or a function of its arguments.
            max_wait: as for `wait`; by default calls over the limit raise at once.

        Raises:
            ValueError: there is no such policy.
            TypeError: what is given is no name; the parentheses were forgotten, perhaps.

        The function under it raises `LimitExceeded` instead of being called when over. A slot of
        a limit such as `5 at once` is held while the call lasts.
        """
        for name in policies:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is no policy's name: write @limiter.limit() above it")
        question = self._questions.question(policies or None)

        def hold(key: str, cost: int) -> AbstractAsyncContextManager[object]:
            return self._hold(question, key, cost, max_wait)

        return LimitDecorator(hold, key, cost)

    # For the integrations, which ask about requests that carry their keys.

    @property
    def asker(self) -> Asker:
        """What is asked. Raises `RuntimeError` if the limiter is not open."""
        if self._open is None:
            raise RuntimeError("the limiter is not open: use it in 'async with limiter:'")
        return self._open

    def plan(self, route: str, policies: Names) -> Plan:
        """The policies of the requests of one route. Raises `ValueError` for unknown ones."""
        return self._questions.plan(route, policies)


def _by_name(policies: Sequence[Policy]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for policy in policies:
        if not isinstance(policy, Policy):
            raise TypeError(f"{policy!r} is no policy: such as Policy('name', '10/s')")
        if policy.name in named:
            path, message = f"policies.{policy.name}", f"two policies are named {policy.name!r}"
            raise ConfigError([Problem("Limiter", 0, 0, path, message, "each has its own name")])
        named[policy.name] = policy.as_data()
    return named
