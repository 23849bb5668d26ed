"""A configuration in use: everything that is made from it, but for sockets.

A reload makes the next one beside it. What has not changed is used again as the same object:
certificates, upstreams with their connections and health, the store and its decider. So a request
that began under the old configuration ends under it, and no count is lost.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gateway.admin.readiness import StoreState
from gateway.base.errors import ConfigError
from gateway.base.renewal import Renewal
from gateway.board.board import Seat
from gateway.config.models.frontends import titles
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import with_candidates
from gateway.config.models.upstreams import part_of
from gateway.limits.key_overrides import KeyOverrides
from gateway.net.binding import SHARED, Sharing
from gateway.observe.logs import AccessLog
from gateway.observe.metrics import GatewayMetrics, ShownNames
from gateway.proxy.client.admission import ClientBounds, affordable
from gateway.proxy.gate import Gate
from gateway.proxy.response import Unrouted
from gateway.proxy.server import ProxySettings
from gateway.proxy.upstream.pool import TargetPool
from gateway.proxy.upstream.targets import Upstream
from gateway.routing.client_address import ClientAddress
from gateway.stores.base import Store, WarningStore
from gateway.stores.memory.store import MemoryStore
from gateway.stores.migrating import MovingStore
from gateway.stores.opening import reconfigure_memory
from gateway.stores.shared.store import SharedStore
from gateway.systems.base import FrontendContext
from gateway.wiring.field_names import hidden_fields, reserved_fields
from gateway.wiring.file_source import INTERVAL_S
from gateway.wiring.limiter import (
    cannot_use_store,
    close_store,
    decider_of,
    expect_limits,
    limits_by_policy,
    memory_store_of,
    memory_url,
    overrides_of,
    reader_of,
    reconfigure_decider,
    show_memory,
    store_of,
)
from gateway.wiring.listeners import Certificates, certificates_of
from gateway.wiring.policies import compile_policies, plans_of
from gateway.wiring.routes import compile_cors, compile_pages, compile_routes
from gateway.wiring.sources import Sources
from gateway.wiring.store_need import reason_to_need_store
from gateway.wiring.tokens import Tokens, tokens_of

if TYPE_CHECKING:
    from gateway.limiter.decider import Decider
    from gateway.stores.mysql.policies import PolicyReader

MAX_ANSWER_HEAD = 128 * 1024
"""Maximum size of the header fields of a response, in bytes."""
LOOK_S = 0.25
"""How often a decider that is no longer used is checked for requests that it still serves."""


class ProcessParts(NamedTuple):
    """What all configurations of a process have in common.

    Attributes:
        metrics: all counters.
        workers: how many processes serve.
        memory: the store for `memory://` that they share; None if this is the only one.
        has_frontends: whether this process serves the clients of other systems.
        is_leaving: whether the gateway is shutting down, but still serving.
        sharing: as in `FrontendContext`.
        seat: the place of this process at the workers' board; None if this is the only one.
    """

    metrics: GatewayMetrics
    workers: int = 1
    memory: Store | None = None
    has_frontends: bool = True
    is_leaving: Callable[[], bool] = lambda: False
    sharing: Sharing = SHARED
    seat: Seat | None = None


class RunningConfig:
    """A configuration, and what was made from it.

    Args:
        config: checked and complete.
        around: what all configurations of this process have in common.
        predecessor: the configuration before; None at the start.

    Attributes:
        config: as given.
        store: where counts are.
        decider: asks it.
        certificates: all of them; call `load` before they are used.
        sources: files of lists and tables; likewise.
        upstreams: by name.
        policies: the run-time form of each policy, by name.
        overrides: the numbers of keys that have their own; None if none have.
        reader: keeps them up to date; None if there are none.
        tokens: verifies the tokens of clients; None if no limit counts by them.

    Raises:
        StartError: the URL of the store cannot be used, or a library is missing.
    """

    def __init__(
        self, config: GatewayConfig, around: ProcessParts, predecessor: RunningConfig | None = None
    ) -> None:
        self.config = config
        self._around = around
        self._predecessor = predecessor
        metrics = around.metrics
        self._memory = around.memory
        if predecessor is not None and self._memory is None and memory_url(config):
            self._memory = memory_store_of(predecessor.store)
        self._take_store(predecessor)
        self.certificates: Certificates = certificates_of(
            config,
            has_frontends=around.has_frontends,
            predecessor=predecessor.certificates if predecessor is not None else None,
        )
        self.upstreams = {name: self._upstream(name, predecessor) for name in config.upstreams}
        self.overrides = self._take_overrides(predecessor)
        before = predecessor.sources if predecessor is not None else None
        self.sources: Sources = Sources(config, before)
        self._renewal = Renewal(self.sources.all, interval_s=INTERVAL_S, subject="files")
        for route in config.routes:
            # Here, and not in another thread, where it could interrupt a scrape.
            metrics.route(route.name)
        self.policies = compile_policies(config, metrics, self.overrides)
        old_tokens = predecessor.tokens if predecessor is not None else None
        self.tokens: Tokens | None = tokens_of(config, old_tokens)

    def compile(self) -> None:
        """Compile what requests need; thousands of routes take a while, so call it in a thread."""
        config = self.config
        gate = Gate(
            compile_routes(
                config,
                self.upstreams,
                self.policies,
                self.decider,
                self._around.metrics,
                self.sources,
                self.tokens,
            ),
            ClientAddress(config.trusted_proxies, config.ipv6_prefix),
            hidden_fields(config),
        )
        self._limits = limits_by_policy(config)
        self._settings = ProxySettings(
            gate,
            config.server,
            None,
            bounds=bounds_of(config, self._around.workers),
            reserved=reserved_fields(config),
            unrouted=Unrouted(compile_pages(config), compile_cors(config.defaults.cors)),
        )

    def load(self) -> None:
        """Read the files of certificates, lists and tables that are new; blocks.

        Raises:
            StartError: a file cannot be used.
        """
        self.certificates.load()
        self.sources.load()

    # What is made, or taken over.

    def _take_store(self, predecessor: RunningConfig | None) -> None:
        config, metrics = self.config, self._around.metrics
        self.store: Store
        self.decider: Decider
        if predecessor is not None and _has_same_store(predecessor.config, config):
            self.store, self.decider = predecessor.store, predecessor.decider
            return
        workers = self._around.workers
        try:
            self.store = store_of(config, metrics, self._memory, workers)()
        except ConfigError as error:
            raise cannot_use_store("store.url", error) from error
        seat = self._around.seat
        self.decider = decider_of(config, self.store, metrics.store("main"), workers, seat)

    def _upstream(self, name: str, predecessor: RunningConfig | None) -> Upstream:
        config, tls = self.config.upstreams[name], self.certificates.upstreams.get(name)
        found = predecessor.upstreams.get(name) if predecessor is not None else None
        if predecessor is not None and found is not None:
            is_same = predecessor.config.upstreams[name] == config
            if is_same and predecessor.certificates.upstreams.get(name) is tls:
                return found
        counters = self._around.metrics.upstream(name)
        return Upstream(
            name,
            config,
            counters,
            MAX_ANSWER_HEAD,
            tls,
            predecessor=found,
            seat=self._around.seat,
            workers=self._around.workers,
        )

    def _take_overrides(self, predecessor: RunningConfig | None) -> KeyOverrides | None:
        self.reader: PolicyReader | None
        overrides = overrides_of(self.config)
        if overrides is not None and predecessor is not None and predecessor.reader is not None:
            is_same = predecessor.config.store == self.config.store
            self.reader = predecessor.reader if is_same else reader_of(self.config, overrides)
            return predecessor.overrides if is_same else overrides
        self.reader = reader_of(self.config, overrides)
        return overrides

    @property
    def pools(self) -> set[TargetPool]:
        """Return the targets of all upstreams."""
        return {pool for upstream in self.upstreams.values() for pool in upstream.pools}

    # What it says.

    @property
    def max_connections(self) -> int:
        """Return how many clients there may be in this process."""
        return self._settings.bounds.here

    def settings(self, access_log: AccessLog | None) -> ProxySettings:
        """Return what it says of HTTP clients."""
        return self._settings._replace(access_log=access_log)

    def store_states(self) -> tuple[list[StoreState], str]:
        """Return whether its stores work as policies need, and a remark about them."""
        store = self.store
        states = [StoreState("main", self.decider.is_ready, reason_to_need_store(self.config))]
        if isinstance(store, MovingStore):
            # Policies need the old store.
            states.append(StoreState("new", store.is_new_ready, needed_by=""))
        return states, store.warning if isinstance(store, WarningStore) else ""

    def frontend_context(self) -> FrontendContext:
        """Return what the clients of other systems share with routes."""
        config, around = self.config, self._around
        certificates = self.certificates.frontends
        return FrontendContext(
            config=config,
            decider=self.decider,
            store=self.store,
            policies=self.policies,
            plan_of=plans_of(with_candidates(config.policies), self.policies),
            metrics=around.metrics,
            tls=dict(zip(titles(config.listeners), certificates, strict=True)),
            is_leaving=around.is_leaving,
            sharing=around.sharing,
        )

    def look_at_keys(self) -> None:
        """Look immediately whether the keys of tokens have changed."""
        if self.tokens is not None:
            self.tokens.source.look_now()

    # Its life.

    async def start(self) -> None:
        """Let the store connect, in the background, unless it has been in use before."""
        predecessor = self._predecessor
        if predecessor is None or predecessor.decider is not self.decider:
            await self.decider.start()
        if self.reader is not None and (
            predecessor is None or predecessor.reader is not self.reader
        ):
            await self.reader.start()
        if self.tokens is not None:
            if predecessor is not None and self.tokens.shares_with(predecessor.tokens):
                self.look_at_keys()
            else:
                await self.tokens.source.start()

    def take_effect(self) -> None:
        """Apply the numbers that the store and upstreams go by; after this it is in use."""
        predecessor, self._predecessor = self._predecessor, None
        config = self.config
        self.publish()
        if predecessor is not None and predecessor.decider is self.decider:
            reconfigure_decider(self.decider, config)
            expect_limits(self._limits, self.store)
        if isinstance(self._memory, MemoryStore):
            reconfigure_memory(self._memory, memory_url(config))
        elif isinstance(self._memory, SharedStore):
            self._memory.reconfigure(config.store.deadline)
        self._renewal.start()
        kept = predecessor.upstreams.values() if predecessor is not None else ()
        for upstream in self.upstreams.values():
            if upstream not in kept:
                upstream.start()

    def learn(self) -> None:
        """Take over what other workers have written on the board."""
        for upstream in self.upstreams.values():
            upstream.learn()

    def publish(self) -> None:
        """Let the counters show what this configuration uses, and nothing else."""
        config, metrics = self.config, self._around.metrics
        metrics.keep(shown_names(config))
        self.decider.publish()
        show_memory(self.store, metrics)
        for upstream in self.upstreams.values():
            upstream.publish()
        metrics.settle()

    async def retire(self, successor: RunningConfig) -> None:
        """End what another configuration does not use, once no request needs it any more."""
        await self._renewal.end()
        for upstream in self.upstreams.values():
            if upstream not in successor.upstreams.values():
                upstream.retire(successor.pools)
        if self.reader is not None and self.reader is not successor.reader:
            await self.reader.aclose()
        if self.tokens is not None and not self.tokens.shares_with(successor.tokens):
            await self.tokens.source.aclose()
        if self.decider is not successor.decider:
            try:
                # Requests end in many places, and none of them knows who waits for the last one.
                while self.decider.is_busy:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)
            finally:
                await self._close_store(successor._memory)

    async def discard(self, predecessor: RunningConfig) -> None:
        """Undo what was made: this configuration is not used."""
        predecessor.publish()
        for upstream in self.upstreams.values():
            if upstream not in predecessor.upstreams.values():
                upstream.close(predecessor.pools)
        if self.reader is not None and self.reader is not predecessor.reader:
            await self.reader.aclose()
        if self.tokens is not None and not self.tokens.shares_with(predecessor.tokens):
            await self.tokens.source.aclose()
        if self.decider is not predecessor.decider:
            await self._close_store(self._memory)

    async def _close_store(self, kept: Store | None) -> None:
        await self.decider.finish()
        await close_store(self.store, kept)

    async def aclose(self) -> None:
        """End everything; nothing is served any more."""
        await self._renewal.end()
        for upstream in self.upstreams.values():
            upstream.close()
        if self.reader is not None:
            await self.reader.aclose()
        if self.tokens is not None:
            await self.tokens.source.aclose()
        await self.decider.aclose()


def _has_same_store(old: GatewayConfig, new: GatewayConfig) -> bool:
    """Return whether two configurations can use the same store, and its decider."""
    before, after = old.store, new.store
    same: dict[str, object] = {"share": after.share}
    if memory_url(new) == after.url:
        # It answers at once, whatever the deadline, and keeps its counts when its room changes.
        same |= {"url": after.url, "deadline": after.deadline}
        if memory_url(old) != before.url:
            return False
    return old.domain == new.domain and before.model_copy(update=same) == after


def shown_names(config: GatewayConfig) -> ShownNames:
    """Return what the counters of a configuration are about."""
    return ShownNames(
        routes={route.name for route in config.routes},
        policies=with_candidates(config.policies),
        upstreams=config.upstreams,
        stores={"main"} if config.store.migrate is None else {"main", "new"},
        frontends=titles(config.listeners),
    )


def bounds_of(config: GatewayConfig, workers: int) -> ClientBounds:
    """Return how many clients there may be: as configured, and as the open files allow."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, per_ip = config.server.max_connections, config.server.max_connections_per_ip
    if wanted == "auto":
        upstreams = config.upstreams.values()
        taken = sum(part_of(u.max_connections, workers) * len(u.targets) for u in upstreams)
        return ClientBounds(affordable(open_files, taken), None, per_ip)
    return ClientBounds(min(wanted, affordable(open_files, 0)), wanted, per_ip)


def missing_files(config: GatewayConfig, workers: int) -> str:
    """Return a warning if the limit of open files allows fewer clients than the configuration."""
    here, wanted, _ = bounds_of(config, workers)
    if wanted is None or wanted <= workers * here:
        return ""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    each = f" in each of {workers} workers" if workers > 1 else ""
    return (
        f"server.max_connections is {wanted}, but the limit of {open_files} open files allows only "
        f"{here}{each}; raise it with ulimit -n, or LimitNOFILE of systemd"
    )
