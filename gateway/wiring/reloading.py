"""Reloads the configuration of a gateway that is one process.

It reads and checks the configuration as a start does, and passes it to the gateway, which applies
it whole or not at all. `gateway.admin.reloading` says what came of it. A gateway of several workers
is reloaded by its supervisor (`gateway.workers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from gateway.admin.reloading import ReloadOutcome, ReloadRecord, not_possible
from gateway.base.errors import ConfigError, GatewayError, Problem, StartError
from gateway.base.tasks import Tasks
from gateway.config.checking.check import Checked
from gateway.config.explaining.differences import differences
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.base import Model
from gateway.config.values.redaction import Secrets
from gateway.wiring.watching import Watcher

log = logging.getLogger(__name__)

END_S: Final = 5.0
"""How long a stop waits for a reload in progress."""


class ConfigSource(Protocol):
    """Where a configuration comes from."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def loaded(self) -> bytes:
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
    """

    def __init__(self, gateway: Swappable, source: ConfigSource, secrets: Secrets) -> None:
        self._gateway = gateway
        self._source = source
        self._secrets = secrets
        self._has_started = asyncio.Event()
        self._has_ended = False
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Future[ReloadOutcome] | None = None
        self._tasks = Tasks()
        self._watcher = Watcher(source.digest, self.reload, source.loaded)

    def start(self) -> None:
        """Begin to reload, and to watch if the configuration says so: the gateway serves."""
        self._has_started.set()
        self._watcher.start(self._gateway.config.server.watch)

    async def end(self) -> None:
        """Reload no more: the gateway stops. A reload in progress has some time to end."""
        self._has_ended = True
        self._has_started.set()
        await self._watcher.end()
        await self._tasks.finish(END_S)

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
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start(self._run(self._next))
        return self._next

    async def _run(self, told: asyncio.Future[ReloadOutcome]) -> None:
        outcome = not_possible(self._source.name, "the gateway is stopping")
        try:
            await self._has_started.wait()
            async with self._one_at_a_time:
                # From here on, changes of the files may be missed by this reload.
                self._next = None
                if not self._has_ended:
                    outcome = await self._attempt()
        finally:
            self._gateway.reloads.note(outcome)
            told.set_result(outcome)

    async def _attempt(self) -> ReloadOutcome:
        name = self._source.name
        try:
            return await self._load_and_apply()
        except ConfigError as error:
            problems = tuple(error.problems)
        except StartError as error:
            problems = (Problem(name, 0, 0, error.path, error.message, error.hint),)
        except GatewayError as error:
            problems = (Problem(name, 0, 0, "", str(error)),)
        except Exception:
            log.exception("a reload has failed")
            problems = (Problem(name, 0, 0, "", "the gateway failed; its log says how"),)
        return ReloadOutcome(False, problems, ())

    async def _load_and_apply(self) -> ReloadOutcome:
        gateway, source = self._gateway, self._source
        gateway.renew_certificates()
        try:
            loaded = await asyncio.to_thread(source.load)
        finally:
            self._watcher.note(source.loaded)
        old, new = gateway.config, loaded.config
        if await asyncio.to_thread(is_same, old, new):
            return ReloadOutcome(True, loaded.warnings, ())
        sentences = await asyncio.to_thread(differences, old, new)
        await gateway.reload(new)
        both = Secrets()
        both.update(self._secrets)
        both.update(loaded.secrets)
        self._secrets = loaded.secrets
        self._watcher.look_every(new.server.watch)
        return ReloadOutcome(True, loaded.warnings, tuple(map(both.hide, sentences)))


def renew_only(gateway: Swappable) -> None:
    """Do what SIGHUP can do for a gateway that was started without files."""
    gateway.renew_certificates()
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
