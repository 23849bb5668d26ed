"""The process that starts and restarts the others; it serves nothing itself.

It has no event loop and no threads, so that it can fork at any moment. Its children write the log:
a restarted one logs the reason.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from contextlib import ExitStack, closing, suppress
from functools import partial
from socket import socket, socketpair
from typing import Final, NoReturn

from gateway.base.clock import monotonic_us
from gateway.base.errors import GatewayError
from gateway.config.checking.check import Checked
from gateway.config.models.gateway import GatewayConfig
from gateway.net.start_errors import too_many_workers
from gateway.wiring.reloading import STOPPING, ConfigSource
from gateway.workers import limiter, orders, upgrade, worker
from gateway.workers.child import HANDLED, LIMITER, Child, kill_and_wait, start_child
from gateway.workers.events import Events
from gateway.workers.files import SharedFiles, shared_files
from gateway.workers.listeners import Listeners, bind
from gateway.workers.loop import run_in_loop
from gateway.workers.parcels import pack
from gateway.workers.places import Place, Places
from gateway.workers.reload import Reloads
from gateway.workers.restarts import Restarts
from gateway.workers.start_signals import StartSignals
from gateway.workers.upgrade import Succession, Upgrade

GRACE_US: Final = 10_000_000
"""How much longer than its own timeouts a worker may take to shut down."""
EXIT_OK: Final = 0


def supervise(
    loaded: Checked,
    workers: int,
    source: ConfigSource,
    start_signals: StartSignals,
    succession: Succession,
) -> int:
    """Run a gateway of several workers until a signal stops it.

    Args:
        loaded: the checked, complete configuration.
        workers: how many workers, at least 2.
        source: where it comes from, for reloads.
        start_signals: those that have come already.
        succession: of this process.

    Returns:
        The exit status.

    Raises:
        StartError: an address or a file is not available, or a child reports such an error.
        GatewayError: a child cannot be started at all.
    """
    listeners = bind(loaded.config, workers, succession.handover)
    with ExitStack() as stack:
        try:
            files = stack.enter_context(shared_files())
            places = stack.enter_context(closing(Places(workers, files.counters)))
            supervisor = _Supervisor(loaded, source, listeners, files, places, succession)
        except OSError as error:
            listeners.remove_files()
            raise too_many_workers(workers, error) from error
        return supervisor.run(start_signals)


class _Supervisor:
    """The supervisor of a gateway.

    Args:
        loaded: the configuration of the gateway.
        source: where it comes from.
        listeners: the sockets of the limiter and of each worker.
        files: the files that they share.
        places: what its children have in shared memory.
        succession: of this process.
    """

    def __init__(
        self,
        loaded: Checked,
        source: ConfigSource,
        listeners: Listeners,
        files: SharedFiles,
        places: Places,
        succession: Succession,
    ) -> None:
        self._config = config = loaded.config
        self._source = source
        self._count = len(listeners.workers)
        self._listeners = listeners
        self._files = files
        self._places = places
        self._succession = succession
        self._upgrade = Upgrade(succession)
        self._is_upgrade_asked = self._is_reload_put_off = False
        self._is_stopped = False
        self._names = (LIMITER, *(f"worker-{number + 1}" for number in range(self._count)))
        self._reloads = Reloads(source, loaded, self._names, self._use, succession)
        self._children: dict[str, Child] = {}
        self._reasons = dict.fromkeys(self._names, "")
        self._restarts = Restarts(self._names)
        self._watchdog_us = config.server.watchdog
        self._is_starting = True
        self._ends_us: int | None = None
        self._events = Events()

    def run(self, start_signals: StartSignals) -> int:
        """Start all children, and manage them until the end."""
        with start_signals.handed_over():
            self._events.catch(HANDLED)
        # Children inherit everything made so far: a garbage collection would copy all of it.
        gc.collect()
        gc.freeze()
        try:
            while self._restarts or self._children:
                self._start_those_due()
                is_late = self._wait()
                for number in self._events.signals():
                    self._on_signal(number)
                self._reap()
                self._go_on_with_upgrade()
                if self._ends_us is None:
                    self._kill_hung(is_late=is_late)
                    self._go_on_with_reload(is_late=is_late)
                    self._begin_upgrade()
        except BaseException:
            self._upgrade.abandon()
            self._kill_all()
            self._listeners.remove_files()
            raise
        return EXIT_OK

    # Starting.

    def _start_those_due(self) -> None:
        now_us = monotonic_us()
        for name in self._restarts.due(now_us):
            try:
                self._children[name] = self._start(name)
                self._link_with(name)
                self._reloads.joined(self._children[name])
            except OSError as error:
                if self._is_starting:
                    message = f"{name} cannot be started: {error.strerror or error}"
                    raise GatewayError(message) from error
                # No memory, processes, files or seats available at the moment: try again later.
                self._restarts.later(name, now_us)
                self._log(logging.WARNING, f"{name} cannot be started yet: {error.strerror}")
                if name in self._children:
                    self._children[name].kill()

    def _start(self, name: str) -> Child:
        """Start a child.

        Raises:
            OSError: there are not enough resources.
        """
        siblings = list(self._children.values())
        place = self._places.take(is_limiter=name == LIMITER)
        run = partial(self._run_in_child, name, place)
        try:
            child = start_child(name, siblings, run, self._watchdog_us)
        except OSError:
            self._places.free(place, 0)
            raise
        child.place = place
        return child

    def _run_in_child(self, name: str, place: Place, channel: socket) -> int:
        """Run a child's part, in the child; return its exit status."""
        self._events.close_in_child()
        self._reloads.close_in_child()
        self._listeners.close_workers(but=(number := self._names.index(name) - 1))
        config, count = self._config, self._count
        reason, lock = self._reasons[name], self._files.log_lock
        is_first = number == 0
        predecessors = frozenset(child.pid for child in self._predecessors(name))
        predecessors |= self._succession.predecessors
        # Listeners for other systems are in the first worker.
        handover = self._succession.enter_child(keeps_sockets=is_first)
        sockets = self._listeners.admin if place.is_limiters else self._listeners.workers[number]
        post = worker.Post(
            name, channel, sockets, lock, place, reason, is_first, predecessors, handover
        )
        if place.is_limiters:
            source, state = self._source, self._reloads.state
            return run_in_loop(lambda: limiter.serve(config, count, post, source, state))
        self._listeners.close_admin()
        return run_in_loop(lambda: worker.serve(config, count, post))

    def _link_with(self, name: str) -> None:
        """Connect a new child with those that it works with."""
        others = self._names[1:] if name == LIMITER else (name,)
        for other in others:
            if LIMITER not in self._children or other not in self._children:
                continue
            pairs = [socketpair() for _ in range(orders.LINK_SOCKETS)]
            for end, child in enumerate((LIMITER, other)):
                sockets = [pair[end] for pair in pairs]
                numbers = [one.fileno() for one in sockets]
                orders.give(self._children[child].channel, orders.LINK, numbers)
                for one in sockets:
                    one.close()
        if name == LIMITER and self._ends_us is not None:
            orders.give(self._children[LIMITER].channel, orders.DRAIN)

    # Managing them.

    def _wait(self) -> bool:
        """Wait for an event or a due time; return whether this is too late to judge children."""
        moments = [self._restarts.next_us(), self._ends_us, self._reloads.next_us()]
        if self._ends_us is None:
            watchdogs = (child.watchdog for child in self._children.values() if not child.hung_us)
            moments += [dog.next_us() for dog in watchdogs if dog is not None]
            moments.append(self._upgrade.next_us())
        channels = [child.channel for child in self._children.values()]
        if self._upgrade.is_waiting and self._upgrade.successor is not None:
            channels.append(self._upgrade.successor.channel)
        return self._events.wait(channels, [us for us in moments if us is not None])

    def _on_signal(self, number: int) -> None:
        if number in {signal.SIGTERM, signal.SIGINT}:
            if self._is_stopped:
                self._end_by_signal(number)
            self._is_stopped = True
            if self._ends_us is None:
                self._stop()
        elif number == signal.SIGUSR2:
            self._ask_for_upgrade()
        elif number == signal.SIGUSR1:
            self._order_all(orders.REOPEN)
        elif number == signal.SIGHUP:
            self._reloads.ask()

    def _go_on_with_reload(self, *, is_late: bool) -> None:
        """Reload if that was requested, or continue."""
        if is_late:
            self._reloads.extend()
        if not self._is_starting:
            self._reloads.is_held = bool(self._upgrade.successor) or self._is_upgrade_asked
            self._reloads.step(self._config, self._listeners, self._serving)
            was_put_off, self._is_reload_put_off = self._is_reload_put_off, self._reloads.waits
            if self._is_reload_put_off and not was_put_off:
                self._log(logging.INFO, upgrade.RELOAD_WAITS)

    def _use(self, config: GatewayConfig, listeners: Listeners) -> None:
        """Start children with another configuration from now on."""
        self._config, self._listeners = config, listeners
        for line in self._succession.drop_unwanted(config):
            self._log(logging.WARNING, line)
        if self._watchdog_us != config.server.watchdog:
            self._watchdog_us = config.server.watchdog
            for child in self._children.values():
                child.watch(self._watchdog_us)

    @property
    def _serving(self) -> list[Child]:
        """The children that are not about to end."""
        return [child for child in self._children.values() if not child.is_replaced]

    def _reap(self) -> None:
        """Reap ended children, and schedule their restarts."""
        for name, child in list(self._children.items()):
            child.listen()
            end = child.exit_description()
            if end is None:
                if child.is_leaving and name in self._names:
                    self._replace(name, child)
                continue
            del self._children[name]
            if child.place is not None:
                self._places.free(child.place, child.cpu_us)
            self._reloads.ended(child)
            if self._is_starting and self._ends_us is None:
                raise child.error or GatewayError(f"{name} cannot be started: it {end}")
            is_needed = self._ends_us is None or (name == LIMITER and bool(self._children))
            if is_needed and name in self._names and name not in self._restarts:
                self._start_again(name, child, end)
        self._stop_replaced()
        if self._is_starting and not self._restarts:
            self._is_starting = not all(child.is_started for child in self._children.values())
            if not self._is_starting and self._ends_us is None:
                for note in self._succession.notes:
                    self._log(logging.WARNING, note)
                self._succession.serving()
                self._order_all(orders.SERVE)
        if self._ends_us is not None:
            self._end_what_is_left(self._ends_us)

    def _kill_hung(self, *, is_late: bool) -> None:
        """Kill children that send no beats; they are restarted like any that dies.

        Args:
            is_late: whether this process did not run when a check was due: whatever stopped it
                may have stopped its children.
        """
        now_us = monotonic_us()
        for child in self._children.values():
            if is_late and child.watchdog is not None:
                child.watchdog.beat(now_us)
            child.kill_if_hung(now_us)

    def _predecessors(self, name: str) -> list[Child]:
        """Return the predecessors of a child that have not ended yet."""
        return [child for key, child in self._children.items() if child.name == name != key]

    def _stop_replaced(self) -> None:
        """Let workers end whose successors serve."""
        for name in self._names:
            child = self._children.get(name)
            if child is None or not child.is_started:
                continue
            for predecessor in self._predecessors(name):
                if not predecessor.is_replaced:
                    predecessor.is_replaced = True
                    self._reloads.ended(predecessor)
                    orders.give(predecessor.channel, orders.YIELD)

    def _replace(self, name: str, child: Child) -> None:
        """Replace a worker that another process stopped: it ends when its successor serves."""
        del self._children[name]
        self._children[f"{name} ({child.pid})"] = child
        if self._ends_us is None:
            # Not immediately: a process that stops all processes is about to stop this one, too.
            self._restarts.schedule_successor(name, monotonic_us())
            self._reasons[name] = f"{name} ({child.pid}) was stopped and has been replaced"

    def _start_again(self, name: str, child: Child, end: str) -> None:
        now_us = monotonic_us()
        self._restarts.ended(name, now_us - child.started_us, now_us)
        error = f": {child.error}" if child.error is not None else ""
        self._reasons[name] = f"{name} ({child.pid}) {end} and has been restarted{error}"

    # Upgrading.

    def _ask_for_upgrade(self) -> None:
        """Upgrade as soon as possible: not during a start or a reload."""
        if self._ends_us is not None:
            self._log(logging.WARNING, upgrade.STOPPING)
        elif self._upgrade.is_waiting or self._is_upgrade_asked:
            self._log(logging.WARNING, upgrade.NOT_UPGRADED % upgrade.UNDER_WAY)
        else:
            self._is_upgrade_asked = True
            if self._is_starting or self._reloads.is_reloading:
                what = "start" if self._is_starting else "reload"
                self._log(logging.INFO, upgrade.UPGRADE_WAITS % what)

    def _begin_upgrade(self) -> None:
        """Begin an upgrade that was requested, if it may begin."""
        if not self._is_upgrade_asked or self._is_starting or self._reloads.is_reloading:
            return
        self._is_upgrade_asked = False
        family = [child.pid for child in self._children.values()]
        try:
            successor = self._upgrade.begin(self._listeners.all, family, monotonic_us())
        except GatewayError as error:
            self._reloads.note_upgrade(str(error))
        else:
            self._log(logging.INFO, upgrade.UPGRADING % successor.pid)

    def _go_on_with_upgrade(self) -> None:
        limiter = self._children.get(LIMITER)
        is_closed = limiter is None or limiter.has_yielded
        if self._ends_us is None and self._upgrade.may_stop(monotonic_us(), is_closed=is_closed):
            self._stop()
        if not self._upgrade.is_waiting:
            return
        is_done = self._upgrade.check(monotonic_us())
        if is_done:
            self._log(logging.INFO, upgrade.UPGRADED)
            self._stop_reloads()
            if limiter is not None:
                orders.give(limiter.channel, orders.YIELD)
        elif is_done is not None:
            self._reloads.note_upgrade(self._upgrade.failure())

    def _log(self, level: int, line: str) -> None:
        """Let a child log a line about this process."""
        if LIMITER in self._children:
            file = pack((level, line))
            orders.give(self._children[LIMITER].channel, orders.LOG, [file])
            os.close(file)

    # Ending.

    def _stop(self) -> None:
        """Let workers finish requests in flight, then stop the limiter."""
        # Then another process serves at the same sockets already.
        is_replaced = self._upgrade.is_done
        server = self._config.server
        if self._is_upgrade_asked:
            self._log(logging.WARNING, upgrade.STOPPING)
        self._upgrade.abandon()
        times_us = server.shutdown_timeout + (0 if is_replaced else server.shutdown_delay)
        self._ends_us = monotonic_us() + times_us + GRACE_US
        self._restarts.forget()
        self._stop_reloads()
        if not is_replaced:
            self._succession.manager.stopping()
        # If they stayed open here, they would accept connections that no process serves.
        if not is_replaced:
            self._listeners.remove_files()
        self._listeners.close_workers()
        self._succession.handover.close()
        stop = orders.YIELD if is_replaced else orders.STOP
        for name, child in self._children.items():
            orders.give(child.channel, orders.DRAIN if name == LIMITER else stop)

    def _stop_reloads(self) -> None:
        why = upgrade.REPLACED if self._upgrade.is_done else STOPPING
        is_asked = self._reloads.stop(self._serving, why)
        if is_asked and self._upgrade.is_done and self._upgrade.successor is not None:
            # The file may have changed after the successor has read it.
            with suppress(ProcessLookupError):
                os.kill(self._upgrade.successor.pid, signal.SIGHUP)

    def _end_what_is_left(self, ends_us: int) -> None:
        if list(self._children) == [LIMITER]:
            orders.give(self._children[LIMITER].channel, orders.STOP)
        if monotonic_us() >= ends_us:
            self._kill_all()

    def _order_all(self, order: bytes) -> None:
        for child in self._children.values():
            orders.give(child.channel, order)

    def _kill_all(self) -> None:
        kill_and_wait(self._children.values())
        self._children.clear()

    def _end_by_signal(self, number: int) -> NoReturn:
        """Kill all children, and end by this signal, the second one."""
        self._kill_all()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        raise SystemExit(128 + number)
