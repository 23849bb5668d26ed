"""Runs a gateway of one process until a signal, or its successor, ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from gateway.base.clock import US, monotonic_us
from gateway.base.errors import GatewayError
from gateway.base.tasks import Tasks
from gateway.config.models.gateway import GatewayConfig
from gateway.wiring.gateway import Gateway
from gateway.wiring.reloading import Reloader, renew_only
from gateway.workers.start_signals import ENDING, StartSignals
from gateway.workers.upgrade import NOT_UPGRADED, UPGRADED, UPGRADING, Succession, Upgrade

log = logging.getLogger(__name__)

EXIT_OK: Final = 0


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
    running = Gateway(config, sharing=succession.sharing)
    running.reloadable = reloader = reloader_of(running) if reloader_of is not None else None
    upgrading = _Upgrading(running, succession, ended)
    reload = reloader.ask if reloader is not None else partial(renew_only, running)
    with start_signals.handed_over():
        for number in ENDING:
            loop.add_signal_handler(number, _end, loop, number, ended)
        loop.add_signal_handler(signal.SIGHUP, reload)
        loop.add_signal_handler(signal.SIGUSR1, running.reopen_log)
        loop.add_signal_handler(signal.SIGUSR2, upgrading.begin)
    await running.start()
    # Everything made so far lives as long as the process; collections can skip it.
    gc.collect()
    gc.freeze()
    await started(running.addresses)
    succession.serving()
    await running.serve_admin()
    upgrading.allow()
    if reloader is not None:
        reloader.start()
    await ended.wait()
    if reloader is not None:
        await reloader.end()
    is_replaced = upgrading.end()
    if not is_replaced:
        succession.manager.stopping()
    await running.stop(is_replaced=is_replaced)
    return EXIT_OK


def _end(loop: asyncio.AbstractEventLoop, number: int, ended: asyncio.Event) -> None:
    """Shut down gracefully at the first signal and immediately at the second."""
    ended.set()
    loop.remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)


class _Upgrading:
    """Upgrades of a gateway in an event loop.

    Args:
        running: the gateway.
        succession: of this process.
        ended: set when a successor serves.
    """

    def __init__(self, running: Gateway, succession: Succession, ended: asyncio.Event) -> None:
        self._running = running
        self._ended = ended
        self._upgrade = Upgrade(succession)
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self._is_allowed = False

    def allow(self) -> None:
        """Allow upgrades from now on: the gateway serves."""
        self._is_allowed = True

    def begin(self) -> None:
        """Start a successor."""
        if not self._is_allowed or self._ended.is_set():
            log.warning("not upgraded: this gateway is starting or stopping")
            return
        now_us = monotonic_us()
        try:
            successor = self._upgrade.begin(self._running.sockets, {os.getpid()}, now_us)
        except GatewayError as error:
            log.error(NOT_UPGRADED, error)  # noqa: TRY400 - the reason says it all
            return
        log.info(UPGRADING, successor.pid)
        self._loop.add_reader(successor.channel, self._check)
        self._timer = self._loop.call_at(
            self._loop.time() + (successor.due_us - now_us) / US, self._check
        )

    def _check(self) -> None:
        is_done = self._upgrade.check(monotonic_us())
        if is_done is None:
            return
        self._forget()
        if is_done:
            log.info(UPGRADED)
            self._ended.set()
        else:
            self._tasks.start(self._note_failure())

    def _forget(self) -> None:
        """Wait for the successor no longer."""
        if self._timer is not None and self._upgrade.successor is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.remove_reader(self._upgrade.successor.channel)

    async def _note_failure(self) -> None:
        reason = await asyncio.to_thread(self._upgrade.failure)
        log.error(NOT_UPGRADED, reason)

    def end(self) -> bool:
        """End a successor that does not serve yet; return whether there is one that does."""
        self._forget()
        self._upgrade.abandon()
        return self._upgrade.is_done
