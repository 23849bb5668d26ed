"""A child of the supervisor: how it is started, and its state."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from socket import socket, socketpair
from typing import Final, NoReturn

from gateway.base.clock import US, monotonic_us
from gateway.base.errors import GatewayError
from gateway.workers import orders
from gateway.workers.orphans import end_with_parent
from gateway.workers.places import Place
from gateway.workers.start_signals import signals_blocked
from gateway.workers.watchdog import Sample, Watchdog

HANDLED: Final = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
    signal.SIGCHLD,
)
"""Signals that the supervisor handles; its children ignore them, or handle them themselves."""
EXIT_FAILED: Final = 1
KILL_ORPHAN_S: Final = orders.ORPHAN_S + 1.0
"""After how long a child that its supervisor has left is killed if it does not end by itself."""
LIMITER: Final = "limiter"
"""The name of the process that keeps the counts."""


class Child:
    """A running process.

    Args:
        name: its name, for the log.
        pid: its id.
        channel: the supervisor's end.
        limit_us: how long it may send no beat; None for no limit.

    Attributes:
        started_us: when it was started.
        watchdog: detects whether it hangs; None if that is switched off.
        is_started: whether it has reported that it serves.
        is_leaving: whether it has reported that it will end.
        has_yielded: whether it has reported that its admin listener is closed (the limiter).
        is_replaced: whether it was notified that another serves in its place.
        hung_us: how long it had sent no beat when it was killed for that.
        error: why it cannot start, as reported.
        place: what it has in shared memory.
        cpu_us: the CPU time that it has used; known when it has ended.
        reloads: how many requests for a reload it has passed on.
        is_asking: whether there was one since this was last set to False.
    """

    def __init__(self, name: str, pid: int, channel: socket, limit_us: int | None) -> None:
        self.name = name
        self.pid = pid
        self.channel = channel
        self.started_us = monotonic_us()
        self.watchdog = None if limit_us is None else Watchdog(limit_us, self.started_us)
        self.hung_us = 0
        self.is_started = False
        self.is_leaving = False
        self.has_yielded = False
        self.is_replaced = False
        self.error: GatewayError | None = None
        self.place: Place | None = None
        self.cpu_us = 0
        self.reloads = 0
        self.is_asking = False
        self._answers: list[orders.ChildMessage] = []
        self._said = b""

    def listen(self) -> bool:
        """Read its messages; returns False if there will be no more."""
        try:
            data = self.channel.recv(1 << 16)
        except OSError:
            return False
        self._said += data
        *lines, self._said = self._said.split(b"\n")
        if lines and self.watchdog is not None:
            self.watchdog.beat(monotonic_us())
        for line in filter(None, lines):
            said = orders.read_message(line)
            self.is_started = self.is_started or said.is_started
            self.is_leaving = self.is_leaving or said.is_leaving
            self.has_yielded = self.has_yielded or said.has_yielded
            if said.reloads:
                self.reloads, self.is_asking = said.reloads, True
            if said.prepared or said.committed:
                self._answers.append(said)
            elif said.error:
                self.error = said.reason()
        return bool(data)

    def take_answers(self) -> list[orders.ChildMessage]:
        """Return what it has said about new configurations since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def watch(self, limit_us: int | None) -> None:
        """Change how long it may send no beat."""
        self.watchdog = None if limit_us is None else Watchdog(limit_us, monotonic_us())

    def kill_if_hung(self, now_us: int) -> None:
        """Kill it if it has sent no beat for too long."""
        watchdog = self.watchdog
        if watchdog is None or self.hung_us or now_us < watchdog.next_us():
            return
        if watchdog.hangs(now_us, _sample(self.pid)):
            self.give_up(watchdog.silent_us(now_us))

    def give_up(self, silent_us: int) -> None:
        """Kill it, because it has not responded for some time."""
        self.hung_us = silent_us
        self.kill()

    def kill(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def exit_description(self) -> str | None:
        """Return how it ended, in words; None while it runs."""
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.cpu_us = round((usage.ru_utime + usage.ru_stime) * US)
        while self.listen():
            pass
        self.channel.close()
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return f"ended with status {code}"
        if self.hung_us:
            return f"did not respond for {self.hung_us / US:.1f} s, was killed"
        known = {number.value: number.name for number in signal.Signals}
        return f"was killed by {known.get(-code, f'signal {-code}')}"


def _sample(pid: int) -> Sample | None:
    """Return the state of a process; None if the system has none, as outside Linux."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(words[11]) + int(words[12])
    return Sample(words[0], ticks * US // os.sysconf("SC_CLK_TCK"))


def kill_and_wait(children: Collection[Child]) -> None:
    """Kill processes, and return when they have ended."""
    for child in children:
        child.kill()
    for child in children:
        with suppress(ChildProcessError):
            os.waitpid(child.pid, 0)


def start_child(
    name: str, siblings: Iterable[Child], run: Callable[[socket], int], limit_us: int | None
) -> Child:
    """Start a process that runs a function and exits with its result.

    Args:
        name: its name.
        siblings: the other children. The new one must not keep their channels open, or they would
            not notice the end of the supervisor.
        run: the function, which receives the child's end of its channel.
        limit_us: how long it may send no beat; None for no limit.
    """
    ours, theirs = socketpair()
    parent = os.getpid()
    # The child must not run the handlers of the supervisor.
    with signals_blocked(HANDLED):
        pid = os.fork()
        if not pid:
            for sibling in siblings:
                sibling.channel.close()
            ours.close()
            _run_child(parent, theirs, run)
    theirs.close()
    ours.setblocking(False)
    return Child(name, pid, ours, limit_us)


def _run_child(parent: int, channel: socket, run: Callable[[socket], int]) -> NoReturn:
    """Run the function, and never return."""
    code = EXIT_FAILED
    try:
        end_with_parent(parent, KILL_ORPHAN_S)
        signal.set_wakeup_fd(-1)
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        code = run(channel)
    except GatewayError as error:
        orders.report_failed(channel, error)
    except BaseException:  # noqa: BLE001 - no caller could handle it
        traceback.print_exc()
    finally:
        with suppress(Exception):  # It may be closed.
            sys.stderr.flush()
        # Not sys.exit: exit handlers of the supervisor must not run in its children.
        os._exit(code)
