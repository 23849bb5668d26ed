"""Reloads the configuration of a gateway that is one process.

It reads and checks the configuration as a start does, and passes it to the gateway, which applies
it whole or not at all. `gateway.admin.reloading` says what came of it. A gateway of several workers
is reloaded by its supervisor (`gateway.workers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from gateway.admin.reloading import ReloadOutcome, ReloadRecord, not_possible
from gateway.base.errors import GatewayError, Problem, problems_of
from gateway.base.tasks import Tasks
from gateway.config.checking.check import Checked
from gateway.config.explaining.differences import differences
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.base import Model
from gateway.config.values.redaction import Secrets
from gateway.net.service_manager import NO_MANAGER, ServiceManager
from gateway.wiring.changed_files import fingerprints, renewed
from gateway.wiring.reading import read_in_time
from gateway.wiring.watching import Watcher

log = logging.getLogger(__name__)

END_S: Final = 5.0
"""How long a stop waits for a reload in progress."""
STOPPING: Final = "the gateway is stopping"


class ConfigSource(Protocol):
    """Where a configuration comes from."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    loaded: bytes
    """The digest of what was loaded last."""

    def load(self) -> Checked:
        """Read and check it; blocks.

        Raises:
            ConfigError: with all problems.
        """

    def digest(self) -> bytes:
        """Return a digest of what there is to load now; blocks."""


class Swappable(Protocol):
    """A gateway whose configuration can be swapped."""

    @property
    def config(self) -> GatewayConfig:
        """The configuration in force."""

    @property
    def reloads(self) -> ReloadRecord:
        """What came of its reloads."""

    async def reload(self, config: GatewayConfig) -> None:
        """Apply a configuration, or raise `GatewayError` and change nothing."""

    def renew_certificates(self) -> None:
        """Check immediately whether certificate files have changed."""


class Reloader:
    """Reloads the configuration of a gateway, on request or when its files change.

    Args:
        gateway: the gateway.
        source: where its configuration comes from.
        secrets: those in the configuration in force.
        manager: the service manager.
        drop_unwanted: closes inherited sockets that no listener of a configuration uses, and
            returns lines about them; blocks.
        certificates: the fingerprints of their files, and of those of lists.
    """

    def __init__(
        self,
        gateway: Swappable,
        source: ConfigSource,
        secrets: Secrets,
        manager: ServiceManager = NO_MANAGER,
        drop_unwanted: Callable[[GatewayConfig], list[str]] = lambda _: [],
        certificates: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._gateway = gateway
        self._source = source
        self._secrets = secrets
        self._manager = manager
        self._drop_unwanted = drop_unwanted
        self._certificates = certificates
        self._has_started = asyncio.Event()
        self._has_ended = False
        self._reason = STOPPING
        self._why_held = ""
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Future[ReloadOutcome] | None = None
        self._tasks = Tasks()
        self._watcher = Watcher(source.digest, self.reload, source.loaded)

    def start(self) -> None:
        """Begin to reload, and to watch if the configuration says so: the gateway serves."""
        self._has_started.set()
        self._watcher.start(self._gateway.config.server.watch)

    def stop(self, reason: str = STOPPING) -> bool:
        """Begin no more reloads; return whether one was requested that has not begun.

        Args:
            reason: why, for those who have requested it.
        """
        if not self._has_ended:
            self._reason = reason
        self._has_ended = True
        self._has_started.set()
        return self._next is not None

    async def end(self) -> None:
        """Reload no more: the gateway stops. A reload in progress has some time to end."""
        self.stop()
        await self._watcher.end()
        await self._tasks.finish(END_S)

    @property
    def file(self) -> str:
        """The file or folder that is read: see `Reloadable`."""
        return self._source.name

    @property
    def is_reloading(self) -> bool:
        """Whether a reload is in progress."""
        return self._one_at_a_time.locked() and not self._why_held

    @asynccontextmanager
    async def held(self, why: str) -> AsyncIterator[None]:
        """Begin no reload inside; the one in progress ends first.

        Args:
            why: logged for a reload that is requested inside.
        """
        async with self._one_at_a_time:
            self._why_held = why
            if self._next is not None:
                log.info("%s", why)
            try:
                yield
            finally:
                self._why_held = ""

    def ask(self) -> None:
        """Reload soon: a signal has asked for it."""
        self._soon()

    async def reload(self) -> ReloadOutcome:
        """Reload now, or after the reload in progress: see `Reloadable`."""
        # A client that leaves does not stop it.
        return await asyncio.shield(self._soon())

    def _soon(self) -> asyncio.Future[ReloadOutcome]:
        """Return the outcome of the next reload to begin."""
        if self._next is None:
            if self._why_held:
                log.info("%s", self._why_held)
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start(self._run(self._next))
        return self._next

    async def _run(self, told: asyncio.Future[ReloadOutcome]) -> None:
        outcome = not_possible(self._source.name, STOPPING)
        try:
            await self._has_started.wait()
            async with self._one_at_a_time:
                # From here on, changes of the files may be missed by this reload.
                self._next = None
                if self._has_ended:
                    outcome = not_possible(self._source.name, self._reason)
                else:
                    outcome = await self._attempt()
        finally:
            self._gateway.reloads.note(outcome)
            told.set_result(outcome)

    async def _attempt(self) -> ReloadOutcome:
        name = self._source.name
        self._manager.reloading()
        try:
            return await self._load_and_apply()
        except GatewayError as error:
            problems = problems_of(error, name)
        except Exception:
            log.exception("a reload has failed")
            problems = (Problem(name, 0, 0, "", "the gateway failed; its log says how"),)
        finally:
            self._manager.started()
        return ReloadOutcome(False, problems, ())

    async def _load_and_apply(self) -> ReloadOutcome:
        gateway, source = self._gateway, self._source
        gateway.renew_certificates()
        try:
            loaded, certificates = await read_in_time(partial(read_all, source), source.name)
        finally:
            self._watcher.note(source.loaded)
        old, new = gateway.config, loaded.config
        changes = renewed(self._certificates, certificates, new)
        if await asyncio.to_thread(is_same, old, new):
            self._certificates = certificates
            return ReloadOutcome(True, loaded.warnings, changes)
        outcome = await asyncio.to_thread(applied, old, self._secrets, loaded, changes)
        await gateway.reload(new)
        self._secrets, self._certificates = loaded.secrets, certificates
        self._watcher.look_every(new.server.watch)
        for line in await asyncio.to_thread(self._drop_unwanted, new):
            log.warning("%s", line)
        return outcome


def read_all(source: ConfigSource) -> tuple[Checked, Mapping[str, bytes]]:
    """Return a configuration, and the fingerprints of the files that it names; blocks.

    Raises:
        ConfigError: with all problems.
    """
    loaded = source.load()
    return loaded, fingerprints(loaded.config)


def applied(
    old: GatewayConfig, secrets: Secrets, loaded: Checked, also: tuple[str, ...]
) -> ReloadOutcome:
    """Return the outcome of a reload that is applied.

    Args:
        old: the configuration before.
        secrets: those in it.
        loaded: the configuration that takes its place.
        also: what else has changed, in sentences.
    """
    hidden = secrets | loaded.secrets
    changes = tuple(map(hidden.hide, differences(old, loaded.config)))
    return ReloadOutcome(True, loaded.warnings, (*changes, *also))


def renew_only(gateway: Swappable, manager: ServiceManager) -> None:
    """Do what SIGHUP can do for a gateway that was started without files."""
    manager.reloading()
    gateway.renew_certificates()
    manager.started()
    log.warning(
        "SIGHUP renews certificates only, because the configuration comes from the environment: "
        "restart the gateway to change it"
    )


def is_same(old: object, new: object) -> bool:
    """Return whether no part of two configurations differs, nor which options are left out.

    An option that is left out may mean something else than its default.
    """
    if isinstance(old, Model) and isinstance(new, Model):
        fields = type(old).model_fields
        return (
            type(old) is type(new)
            and old.model_fields_set == new.model_fields_set
            and all(is_same(getattr(old, name), getattr(new, name)) for name in fields)
        )
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return list(old) == list(new) and all(is_same(old[key], new[key]) for key in old)
    if isinstance(old, tuple) and isinstance(new, tuple) and type(old) is type(new):
        return len(old) == len(new) and all(map(is_same, old, new))
    return old == new
