"""The limiter as a library: its methods, and how it is opened and closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import gateway
from gateway.base.errors import ConfigError, Problem, StartError
from gateway.base.renewal import Renewal
from gateway.base.tasks import becomes
from gateway.base.threads import in_thread
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
from gateway.wiring.file_source import INTERVAL_S
from gateway.wiring.limiter import decider_of, overrides_of, reader_of, store_of
from gateway.wiring.policies import key_hash_of
from gateway.wiring.sources import Sources

log = logging.getLogger(__name__)

CONNECT_S: Final = 1.0
"""How long opening waits for a store that is not ready; after that, `on_store_error` applies."""


class Limiter:
    """Decides whether requests, calls, or anything else with a key are admitted.

    Use it as `async with Limiter(...) as limiter`, from any number of tasks of one event loop. It
    can be created anywhere, also outside of a loop, and opened again after it was closed.

    Args:
        policies: at least one.
        store: the store of counts: a URL, a mapping of `url`, `deadline` and `share` as in the
            configuration, or a `Store` of your own, which is closed with the limiter.
        domain: the namespace of counts in a shared store.
        trusted_proxies: networks of proxies that the middlewares in `gateway.integrations` trust to
            report a client's address.
        ipv6_prefix: bits of an IPv6 address that the middlewares count together.
        key_secret: hashes the keys of policies with `secret=True`.

    Attributes:
        config: the checked, complete configuration.
        metrics: the counters; `gateway.observe.metrics.render(limiter.metrics)` shows it.

    Raises:
        ConfigError: with all problems.
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
        key_secret: str | None = None,
    ) -> None:
        own_store = store if isinstance(store, Store) else None
        data = {
            "policies": _by_name(policies),
            "store": store if own_store is None else "memory://",
            "domain": domain,
            "trusted_proxies": trusted_proxies,
            "ipv6_prefix": ipv6_prefix,
        }
        if key_secret is not None:
            data["key_secret"] = key_secret
        self._prepare(check_data(data, name="Limiter", model=LimiterConfig), own_store)

    @classmethod
    def from_file(cls, path: str | Path, *, environ: Mapping[str, str] | None = None) -> Self:
        """Return a limiter with the policies of a YAML file or folder, which may be a gateway's.

        Args:
            path: the file or folder.
            environ: the variables that `${VAR}` may refer to, such as `os.environ`.

        Raises:
            ConfigError: with all problems, each with its line and column.
        """
        return cls._from(load(Path(path), environ or {}, LimiterConfig))

    @classmethod
    def from_yaml(cls, text: str, *, environ: Mapping[str, str] | None = None) -> Self:
        """The same from text, which cannot refer to secret files."""
        return cls._from(check_text(text, file="text", environ=environ, model=LimiterConfig))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """The same from plain data, as parsed from JSON or TOML."""
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
        self._sources = Sources(self.config)
        self._renewal: Renewal | None = None
        self._questions = Questions(
            self.config.policies,
            self.metrics,
            self._overrides,
            self._sources,
            key_hash_of(self.config),
        )
        self._open: Asker | None = None
        self._immediate: dict[Names, ImmediateLimit] = {}
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Limiter {state}, {', '.join(self.config.policies)}>"

    # Opening and closing.

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._open is not None

    @property
    def is_ready(self) -> bool:
        """Whether the store would probably reply now; False while the limiter is closed."""
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
        """Connect to the store; an unavailable one is not an error, now or later.

        Raises:
            RuntimeError: it is open already.
            ConfigError: the store's URL cannot be used, or the file of a list.
        """
        if self.is_open:
            raise RuntimeError("the limiter is open already")
        await self._closed()
        try:
            await in_thread(self._sources.load)
        except StartError as error:
            problem = Problem("", 0, 0, error.path, error.message, error.hint)
            raise ConfigError([problem]) from error
        store = self._own_store if self._own_store is not None else self._make_store()
        decider = decider_of(self.config, store, self.metrics.store("main"))
        self._open = Asker(decider, reader_of(self.config, self._overrides))
        if type(store) is MemoryStore:
            self._immediate = immediate_limits(self._questions, store)
        try:
            await self._open.start()
            self._renewal = Renewal(self._sources.all, interval_s=INTERVAL_S, subject="files")
            self._renewal.start()
            await becomes(lambda: decider.is_ready, CONNECT_S)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the store and everything else; closing twice is harmless.

        If this is cancelled, closing continues in the background.

        Raises:
            RuntimeError: it was opened in another event loop that is still running.
        """
        if self._open is not None:
            asker = self._open
            is_there = asker.is_in_this_loop()
            self._open, self._immediate = None, {}
            if is_there:
                # A task, because a caller that gives up must not prevent it.
                self._closing = asyncio.get_running_loop().create_task(asker.aclose())
        if self._renewal is not None:
            await self._renewal.end()
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
        """Decide on one request immediately: being over a limit is a value, not an error.

        Args:
            key: the identity to count: an address, a user, an API key, as any text. Limits with
                `per all` count all requests together, whatever the key.
            cost: how much to take.
            policy: the policy's name, or several that must all agree (all are spent or none);
                optional if there is only one.

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
        """Peek: return a decision without spending anything."""
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
        """Wait until the turn of the request comes.

        Turns are first come, first served: among all gateways and limiters that share the store, if
        each of the policies has a `queue`; otherwise among the callers of this limiter. A cancelled
        caller gives its turn back.

        Args:
            key: the identity to count.
            cost: how much to take.
            policy: the policy's name, or several; see `acquire`.
            max_wait: how many seconds to wait at most; None for as long as the queues of the
                policies allow, or without limit if a policy has none.

        Raises:
            LimitExceeded: there is no turn within that time; nothing was spent.
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
        """Hold a slot of a limit such as `5 at once` within an `async with`.

        The slot is held while the block runs, however long, and released afterwards. Other limits
        of the policies stay spent. If this process dies, its slots become free when their `lease`
        expires.

        Args:
            key: the identity to count.
            cost: how many slots to take.
            policy: the policy's name, or several; see `acquire`.
            max_wait: as for `wait`. Callers are served in order within this limiter; slots released
                by other processes are found within a twentieth of a second.

        Raises:
            LimitExceeded: there is no slot within that time; nothing was spent.
            ValueError, RuntimeError: as for `acquire`; or no limit of the policies has slots.
        """
        question = self._questions.question(policy)
        if not question.has_leases:
            names = ", ".join(dict.fromkeys(rule.policy.name for rule in question.rules))
            raise ValueError(f"{names} has no limit such as '5 at once'; use acquire or wait")
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
        """Undo a decision, because the request is not made after all.

        Returns immediately; the store is updated in the background. The part that cannot be undone
        without exceeding the limit stays spent. Does nothing for a refusal, for a decision that was
        given back before, and after the limiter was closed.
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
        """Limit every call of a coroutine function.

        Args:
            policies: names of policies; optional if there is only one.
            key: the identity to count a call for, or a function of its arguments that returns it;
                by default all calls count together.
            cost: the cost of a call, or a function of its arguments.
            max_wait: as for `wait`; by default calls over the limit raise immediately.

        Raises:
            ValueError: there is no such policy.
            TypeError: an argument is not a name; perhaps the parentheses were forgotten.

        Calls over the limit raise `LimitExceeded` instead of running. A slot of a limit such as `5
        at once` is held while the call runs.
        """
        for name in policies:
            if not isinstance(name, str):
                raise TypeError(
                    f"{name!r} is not the name of a policy: write @limiter.limit() above it"
                )
        question = self._questions.question(policies or None)

        def hold(key: str, cost: int) -> AbstractAsyncContextManager[object]:
            return self._hold(question, key, cost, max_wait)

        return LimitDecorator(hold, key, cost)

    # For the integrations, whose requests carry their keys.

    @property
    def asker(self) -> Asker:
        """Return the policies to apply. Raises `RuntimeError` if the limiter is not open."""
        if self._open is None:
            raise RuntimeError("the limiter is not open: use it in 'async with limiter:'")
        return self._open

    def plan(self, route: str, policies: Names, pattern: str | None = None) -> Plan:
        """Return the policies for requests of one route; arguments as in `Questions.plan`."""
        return self._questions.plan(route, policies, pattern)


def _by_name(policies: Sequence[Policy]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for policy in policies:
        if not isinstance(policy, Policy):
            raise TypeError(f"{policy!r} is not a policy; use for example Policy('name', '10/s')")
        if policy.name in named:
            path, message = f"policies.{policy.name}", f"two policies are named {policy.name!r}"
            raise ConfigError(
                [Problem("Limiter", 0, 0, path, message, "use a different name for each")]
            )
        named[policy.name] = policy.as_data()
    return named
