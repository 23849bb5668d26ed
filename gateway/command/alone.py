"""Runs a gateway of one process until a signal, or its successor, ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Final

from gateway.admin import FailedUpgrade
from gateway.base.clock import US, monotonic_us, wall_us
from gateway.base.errors import GatewayError
from gateway.base.tasks import Tasks
from gateway.config.models.gateway import GatewayConfig
from gateway.wiring.gateway import Gateway
from gateway.wiring.reloading import Reloader, renew_only
from gateway.workers.start_signals import ENDING, StartSignals
from gateway.workers.upgrade import (
    NOT_UPGRADED,
    RELOAD_WAITS,
    REPLACED,
    STOPPING,
    UNDER_WAY,
    UPGRADE_WAITS,
    UPGRADED,
    UPGRADING,
    Succession,
    Successor,
    Upgrade,
)

log = logging.getLogger(__name__)

EXIT_OK: Final = 0
END_S: Final = 5.0
"""How long a stop waits for an upgrade that ends its successor."""


async def serve(
    config: GatewayConfig,
    start_signals: StartSignals,
    succession: Succession,
    started: Callable[[Sequence[object]], Awaitable[None]],
    reloader_of: Callable[[Gateway], Reloader] | None = None,
) -> int:
    """Run a gateway; returns its exit status.

    Args:
        config: checked and complete.
        start_signals: those that have come already.
        succession: of this process.
        started: called with the addresses when it serves.
        reloader_of: returns what reloads its configuration; None if there are no files.

    Raises:
        GatewayError: it cannot start.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    manager = succession.manager
    running = Gateway(config, sharing=succession.sharing)
    running.reloadable = reloader = reloader_of(running) if reloader_of is not None else None
    reload = reloader.ask if reloader is not None else partial(renew_only, running, manager)
    upgrading = _Upgrading(running, reloader, succession, ended)
    with start_signals.handed_over():
        for number in ENDING:
            loop.add_signal_handler(number, _end, loop, number, ended)
        loop.add_signal_handler(signal.SIGHUP, reload)
        loop.add_signal_handler(signal.SIGUSR1, running.reopen_log)
        loop.add_signal_handler(signal.SIGUSR2, upgrading.ask)
    await running.start()
    # Everything made so far lives as long as the process; collections can skip it.
    gc.collect()
    gc.freeze()
    for note in succession.notes:
        log.warning("%s", note)
    await started(running.addresses)
    if not ended.is_set():
        succession.serving()
    await running.serve_admin()
    upgrading.start()
    if reloader is not None:
        reloader.start()
    await ended.wait()
    if reloader is not None:
        reloader.stop()
    is_replaced = await upgrading.end()
    if reloader is not None:
        await reloader.end()
    if not is_replaced:
        manager.stopping()
    await running.stop(is_replaced=is_replaced)
    return EXIT_OK


def _end(loop: asyncio.AbstractEventLoop, number: int, ended: asyncio.Event) -> None:
    """Shut down gracefully at the first signal and immediately at the second."""
    ended.set()
    loop.remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)


class _Upgrading:
    """Upgrades of a gateway in an event loop: one at a time, and none during a reload.

    Args:
        running: the gateway.
        reloader: what reloads its configuration; None if there are no files.
        succession: of this process.
        ended: whether the gateway stops; set here when a successor serves.
    """

    def __init__(
        self,
        running: Gateway,
        reloader: Reloader | None,
        succession: Succession,
        ended: asyncio.Event,
    ) -> None:
        self._running = running
        self._reloader = reloader
        self._ended = ended
        self._upgrade = Upgrade(succession)
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._has_started = asyncio.Event()
        self._changed = asyncio.Event()

    def start(self) -> None:
        """Begin upgrades from now on: the gateway serves."""
        self._has_started.set()

    def ask(self) -> None:
        """Upgrade as soon as possible."""
        if self._ended.is_set():
            log.warning(STOPPING)
        elif self._tasks:
            log.warning(NOT_UPGRADED, UNDER_WAY)
        else:
            self._tasks.start(self._run())

    async def _run(self) -> None:
        if not self._has_started.is_set():
            log.info(UPGRADE_WAITS, "start")
            await self._has_started.wait()
        if self._reloader is not None and self._reloader.is_reloading:
            log.info(UPGRADE_WAITS, "reload")
        async with self._without_reloads():
            if self._ended.is_set():
                log.warning(STOPPING)
            else:
                await self._begin()

    def _without_reloads(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._reloader is None else self._reloader.held(RELOAD_WAITS)

    async def _begin(self) -> None:
        now_us = monotonic_us()
        try:
            successor = self._upgrade.begin(self._running.sockets, {os.getpid()}, now_us)
        except GatewayError as error:
            self._note(str(error))
            return
        log.info(UPGRADING, successor.pid)
        is_done = await self._serves(successor)
        if is_done:
            log.info(UPGRADED)
            if self._reloader is not None and self._reloader.stop(REPLACED):
                # The file may have changed after the successor has read it.
                with suppress(ProcessLookupError):
                    os.kill(successor.pid, signal.SIGHUP)
            self._ended.set()
        elif is_done is None:
            self._upgrade.abandon()
        else:
            self._note(await asyncio.to_thread(self._upgrade.failure))

    def _note(self, reason: str) -> None:
        """Tell everywhere that an upgrade has failed."""
        log.error(NOT_UPGRADED, reason)
        self._running.reloads.note_upgrade(FailedUpgrade(reason, wall_us()))

    async def _serves(self, successor: Successor) -> bool | None:
        """Return whether a successor serves; None if the gateway stops before that is known."""
        self._loop.add_reader(successor.channel, self._changed.set)
        try:
            while (is_done := self._upgrade.check(monotonic_us())) is None:
                if self._ended.is_set():
                    return None
                with suppress(TimeoutError):
                    async with asyncio.timeout((successor.due_us - monotonic_us()) / US):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            self._loop.remove_reader(successor.channel)
        return is_done

    async def end(self) -> bool:
        """End a successor that does not serve yet; return whether there is one that does."""
        self._has_started.set()
        self._changed.set()
        await self._tasks.finish(END_S)
        return self._upgrade.is_done
