"""Reloads of a gateway of several workers: the supervisor's part.

A child reads and checks the configuration (`reader`), and the supervisor binds what is new. Then
every child prepares it (`preparing`), and when all have, they use it; if one cannot, none does
(`rollout`). Nothing here waits: the supervisor calls `step` whenever something has happened, and
watches its children meanwhile. The limiter tells the operator what came of it (`ReloadReport`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from gateway.admin import FailedUpgrade, ReloadOutcome, ReloadState, not_possible
from gateway.base.clock import US, Clock, monotonic_us, wall_us
from gateway.base.errors import GatewayError, Problem, StartError, problems_of
from gateway.config.checking.check import Checked
from gateway.config.models.gateway import GatewayConfig
from gateway.net.start_errors import cannot_change_workers
from gateway.wiring.changed_files import fingerprints, renewed
from gateway.wiring.client_listeners import BoundSocket
from gateway.wiring.reloading import ConfigSource, applied, is_same
from gateway.workers import orders
from gateway.workers.child import LIMITER, Child
from gateway.workers.cpus import worker_count
from gateway.workers.listeners import ChangedSockets, Listeners, rebind
from gateway.workers.parcels import pack
from gateway.workers.preparing import Enclosed
from gateway.workers.reader import ConfigReader
from gateway.workers.rollout import ANSWER_US, Answers
from gateway.workers.upgrade import Succession


class ReloadReport(NamedTuple):
    """What the file of the order `OUTCOME` contains.

    Attributes:
        requests: how many requests for a reload, of those that the limiter passed on, it answers.
        digest: of the files that were read, as in `ConfigSource`.
        outcome: what came of it.
        ended_us: when that was known, in microseconds since 1970.
    """

    requests: int
    digest: bytes
    outcome: ReloadOutcome
    ended_us: int


@dataclass(slots=True)
class _Attempt:
    """A configuration on its way to the children.

    Attributes:
        number: its number.
        loaded: the configuration.
        certificates: the fingerprints of their files.
        parcel: the same, for the children.
        sockets: its sockets.
        outcome: what to report if it is applied.
        answers: who has answered the last order.
        taking_part: the ids of the children that were sent the configuration.
        is_committed: whether it is in use.
        problem: why it cannot be used.
    """

    number: int
    loaded: Checked
    certificates: Mapping[str, bytes]
    parcel: int
    sockets: ChangedSockets
    outcome: ReloadOutcome
    answers: Answers
    taking_part: set[int] = field(default_factory=set)
    is_committed: bool = False
    problem: Problem | None = None


class Reloads:
    """All reloads, one at a time.

    Args:
        source: where the configuration comes from.
        loaded: the configuration in force.
        names: the names of the limiter and of all workers, in this order.
        use: called with a configuration and its sockets when it takes effect.
        succession: of this process: its service manager and its inherited sockets.
        clock: the current time.

    Attributes:
        state: what came of reloads so far.
        is_held: whether no reload may begin at the moment.
    """

    def __init__(
        self,
        source: ConfigSource,
        loaded: Checked,
        names: Sequence[str],
        use: Callable[[GatewayConfig, Listeners], None],
        succession: Succession,
        clock: Clock = monotonic_us,
    ) -> None:
        self._source = source
        self._secrets = loaded.secrets
        self._certificates = fingerprints(loaded.config)
        self._names = names
        self._use = use
        self._manager = succession.manager
        self._handover = succession.handover
        self._clock = clock
        self.state = ReloadState(wall_us())
        self._number = 0
        self.is_held = False
        self._is_asked = False
        self._asking: tuple[Child | None, int] = (None, 0)
        self._reader = ConfigReader(source)
        self._attempt: _Attempt | None = None
        self._unreported: list[tuple[Child | None, ReloadReport]] = []
        self._failed_upgrades: list[FailedUpgrade] = []

    def ask(self) -> None:
        """Reload as soon as possible, and after the reload in progress."""
        self._is_asked = True

    @property
    def is_reloading(self) -> bool:
        """Return whether a reload is in progress."""
        return self._attempt is not None or self._reader.is_reading

    @property
    def waits(self) -> bool:
        """Return whether a reload was requested that may not begin at the moment."""
        return self.is_held and self._is_asked

    def next_us(self) -> int | None:
        """Return when `step` must be called at the latest; None if only after an event."""
        return self._attempt.answers.due_us if self._attempt is not None else self._reader.next_us()

    def extend(self) -> None:
        """Give the children more time, because this process was stopped for a while."""
        self._reader.extend(self._clock())
        if self._attempt is not None:
            self._attempt.answers.extend(self._clock())

    # What happens to children.

    def joined(self, child: Child) -> None:
        """Let a child that was just started prepare the new configuration as well."""
        attempt = self._attempt
        if attempt is not None and not attempt.is_committed:
            self._send(attempt, child)

    def ended(self, child: Child) -> None:
        """Do not wait for a child, which has ended or is about to."""
        if self._attempt is not None:
            self._attempt.answers.forget(child.pid)
            self._attempt.taking_part.discard(child.pid)

    def close_in_child(self) -> None:
        """Close what a new child does not use, or not yet."""
        self._reader.close_in_child()
        if self._attempt is not None:
            os.close(self._attempt.parcel)
            if not self._attempt.is_committed:
                self._attempt.sockets.close()

    # What is done.

    def step(self, config: GatewayConfig, listeners: Listeners, children: Sequence[Child]) -> None:
        """Do what can be done now.

        Args:
            config: the configuration in force.
            listeners: its sockets.
            children: those that run, and are not about to end.
        """
        self._hear(children)
        if self._is_asked and not self.is_reloading and not self.is_held:
            self._is_asked = False
            self._begin(children)
        if (read := self._reader.result(self._clock())) is not None:
            self._source.loaded = read.digest
            if read.loaded is not None:
                loaded, certificates = read.loaded, read.certificates
                self._try(
                    partial(self._send_all, loaded, certificates, config, listeners, children)
                )
            else:
                self._end(ReloadOutcome(False, read.problems, ()))
        attempt = self._attempt
        if attempt is not None and not attempt.is_committed:
            self._go_on(attempt, children)
        if attempt is not None and attempt.is_committed:
            self._complete(attempt, children)
        self._report(children)

    def stop(self, children: Sequence[Child], reason: str) -> bool:
        """Reload no more, because the gateway stops.

        Args:
            children: as in `step`.
            reason: why, for those who have requested a reload.

        Returns:
            Whether a reload was requested that has not begun.
        """
        self._hear(children)
        outcome = not_possible(self._source.name, reason)
        attempt = self._attempt
        if self._reader.is_reading:
            self._reader.stop()
            self._end(outcome)
        elif attempt is not None and attempt.is_committed:
            self._end(attempt.outcome)
        elif attempt is not None:
            self._discard(attempt, children, outcome)
        was_asked, self._is_asked = self._is_asked, False
        if was_asked:
            self._remember_who_asks(children)
            self._note(outcome)
        self._report(children)
        return was_asked

    def _hear(self, children: Iterable[Child]) -> None:
        """Take note of what children have said."""
        attempt = self._attempt
        for child in children:
            if child.is_asking:
                child.is_asking = False
                self._is_asked = True
            for said in child.take_answers():
                if attempt is None or attempt.number not in {said.prepared, said.committed}:
                    continue
                if said.error and attempt.problem is None:
                    attempt.problem = self._problem(child.name, said.reason())
                if bool(said.committed) == attempt.is_committed:
                    attempt.answers.receive(child.pid)

    def _problem(self, name: str, error: GatewayError) -> Problem:
        """Return the problem of a child."""
        named = error if isinstance(error, StartError) else GatewayError(f"{name}: {error}")
        return problems_of(named, self._source.name)[0]

    def _begin(self, children: Sequence[Child]) -> None:
        """Let a child read the configuration."""
        self._remember_who_asks(children)
        for child in children:
            # Also if the configuration cannot be used, or has not changed.
            orders.give(child.channel, orders.RENEW)
        self._manager.reloading()
        try:
            self._reader.start(self._clock())
        except OSError as error:
            message = f"no process can be started to read it: {error.strerror}"
            problem = Problem(self._source.name, 0, 0, "", message)
            self._end(ReloadOutcome(False, (problem,), ()))

    def _try(self, send_all: Callable[[], _Attempt | None]) -> None:
        name = self._source.name
        try:
            self._attempt = send_all()
        except GatewayError as error:
            problems = problems_of(error, name)
        except OSError as error:
            problems = (Problem(name, 0, 0, "", f"the supervisor: {error.strerror}"),)
        except Exception as error:  # noqa: BLE001 - the configuration in force must go on
            message = f"the gateway failed to use it: {type(error).__name__}: {error}"
            problems = (Problem(name, 0, 0, "", message),)
        else:
            return
        self._end(ReloadOutcome(False, problems, ()))

    def _remember_who_asks(self, children: Iterable[Child]) -> None:
        limiter = _limiter(children)
        self._asking = (limiter, limiter.reloads if limiter is not None else 0)

    def _send_all(
        self,
        loaded: Checked,
        certificates: Mapping[str, bytes],
        config: GatewayConfig,
        listeners: Listeners,
        children: Sequence[Child],
    ) -> _Attempt | None:
        """Send the configuration to all children if anything has changed."""
        new = loaded.config
        also = renewed(self._certificates, certificates, new)
        if is_same(config, new):
            self._certificates = certificates
            self._end(ReloadOutcome(True, loaded.warnings, also))
            return None
        if worker_count(new.server.workers) != len(listeners.workers):
            raise cannot_change_workers()
        outcome = applied(config, self._secrets, loaded, also)
        parcel = pack(new)
        try:
            sockets = rebind(listeners, config, new, self._handover)
        except BaseException:
            os.close(parcel)
            raise
        self._number += 1
        attempt = _Attempt(
            number=self._number,
            loaded=loaded,
            certificates=certificates,
            parcel=parcel,
            sockets=sockets,
            outcome=outcome,
            answers=Answers([child.name for child in children if child.is_started], self._clock()),
        )
        for child in children:
            self._send(attempt, child)
        return attempt

    def _send(self, attempt: _Attempt, child: Child) -> None:
        """Let a child prepare the configuration."""
        new = attempt.sockets.new
        number = self._names.index(child.name) - 1
        bound: list[BoundSocket] = new.admin if child.name == LIMITER else new.workers[number]
        enclosed = Enclosed(attempt.number, tuple(one.number for one in bound))
        descriptors = [one.socket.fileno() for one in bound]
        for begin in range(0, len(descriptors), orders.MAX_FILES):
            part = descriptors[begin : begin + orders.MAX_FILES]
            orders.give(child.channel, orders.SOCKETS, part)
        attempt.answers.expect(child.pid, child.name)
        attempt.taking_part.add(child.pid)
        try:
            _give(child, orders.PREPARE, enclosed, attempt.parcel)
        except OSError as error:
            reason = GatewayError(f"it cannot be sent the configuration: {error.strerror}")
            attempt.problem = self._problem(child.name, reason)

    def _go_on(self, attempt: _Attempt, children: Sequence[Child]) -> None:
        """Use the configuration if all have prepared it, or give it up."""
        missing = attempt.answers.missing
        if attempt.problem is None and missing and self._clock() >= attempt.answers.due_us:
            message = f"no answer within {ANSWER_US // US} s from {', '.join(missing)}"
            attempt.problem = Problem(self._source.name, 0, 0, "", message)
        if attempt.problem is None and not missing:
            try:
                attempt.sockets.listen()
            except StartError as error:
                attempt.problem = self._problem("", error)
            else:
                self._commit(attempt, children)
        if attempt.problem is not None:
            self._discard(attempt, children, ReloadOutcome(False, (attempt.problem,), ()))

    def _commit(self, attempt: _Attempt, children: Sequence[Child]) -> None:
        # First here: while a socket that is gone is open anywhere, connections are queued there,
        # so workers can only accept the last of them after this process has closed it.
        attempt.sockets.take_effect(self._handover)
        attempt.is_committed = True
        attempt.answers = Answers((), self._clock())
        self._secrets, self._certificates = attempt.loaded.secrets, attempt.certificates
        self._use(attempt.loaded.config, attempt.sockets.listeners)
        for child in self._taking_part(attempt, children):
            self._order(child, orders.COMMIT)
            attempt.answers.expect(child.pid, child.name)

    def _complete(self, attempt: _Attempt, children: Sequence[Child]) -> None:
        """End the reload when all children use the configuration."""
        missing = attempt.answers.missing
        if missing and self._clock() < attempt.answers.due_us:
            return
        for child in children:
            if child.name in missing and child.pid in attempt.taking_part:
                # Its successor uses the new configuration.
                child.give_up(ANSWER_US)
        self._end(attempt.outcome)

    def _discard(
        self, attempt: _Attempt, children: Sequence[Child], outcome: ReloadOutcome
    ) -> None:
        for child in self._taking_part(attempt, children):
            self._order(child, orders.DISCARD)
        attempt.sockets.discard()
        self._end(outcome)

    @staticmethod
    def _taking_part(attempt: _Attempt, children: Iterable[Child]) -> list[Child]:
        return [child for child in children if child.pid in attempt.taking_part]

    @staticmethod
    def _order(child: Child, order: bytes) -> None:
        if not orders.give(child.channel, order):
            # Nobody knows which configuration it would use.
            child.kill()

    # What is reported.

    def _end(self, outcome: ReloadOutcome) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            os.close(attempt.parcel)
        self._manager.started()
        self._note(outcome)

    def _note(self, outcome: ReloadOutcome) -> None:
        ended_us = wall_us()
        self.state = self.state.after(outcome, ended_us)
        limiter, requests = self._asking
        self._asking = (None, 0)
        report = ReloadReport(requests, self._source.loaded, outcome, ended_us)
        self._unreported.append((limiter, report))

    def note_upgrade(self, reason: str) -> None:
        """Let the limiter report that an upgrade has failed, as it does for a reload."""
        failed = FailedUpgrade(reason, wall_us())
        self.state = self.state._replace(upgrade=failed)
        self._failed_upgrades.append(failed)

    def _report(self, children: Iterable[Child]) -> None:
        """Let the limiter report outcomes; a restarted one does it, too."""
        limiter = _limiter(children)
        if limiter is None or not limiter.is_started:
            return
        for asked, report in self._unreported:
            # The requests for a reload that another limiter had passed on have ended with it.
            fitting = report if asked is limiter else report._replace(requests=0)
            with suppress(OSError):
                _give(limiter, orders.OUTCOME, fitting)
        for failed in self._failed_upgrades:
            with suppress(OSError):
                _give(limiter, orders.NOT_UPGRADED, failed)
        self._unreported.clear()
        self._failed_upgrades.clear()


def _limiter(children: Iterable[Child]) -> Child | None:
    return next((child for child in children if child.name == LIMITER), None)


def _give(child: Child, order: bytes, content: object, *others: int) -> None:
    """Send an order with a parcel, and other parcels.

    Raises:
        OSError: no file can be opened.
    """
    parcel = pack(content)
    orders.give(child.channel, order, [parcel, *others])
    os.close(parcel)
