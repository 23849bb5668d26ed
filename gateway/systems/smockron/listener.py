"""Smockron's master: counts what gatekeepers admit, and tells them which clients to hold.

Accounting messages are processed in batches of all that have arrived; a batch is one call of the
store of histories (`gateway.stores.reports`). During a call, one more batch gathers. Messages that
arrive too fast wait in ZeroMQ and are finally dropped there, also while the store does not answer.
Gatekeepers admit clients about which they receive no message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.base.clock import US, Clock, wall_us
from gateway.base.errors import StoreError, StoreTimeout
from gateway.base.tasks import Tasks
from gateway.config.models.frontends import FrontendConfig
from gateway.config.values.address import Address
from gateway.config.values.store_url import parse_store_url
from gateway.limiter.plan import CompiledPolicy, MissingKey, Plan
from gateway.limits.reported import FURTHEST_US, furthest_next_us
from gateway.net.binding import Sharing
from gateway.net.handover import HasNumber
from gateway.observe.metrics import FrontendMetrics
from gateway.stores.reports import Answer, MemoryReports, Report, Reports, SharedReports
from gateway.systems.asking import caller_keys
from gateway.systems.base import FrontendContext
from gateway.systems.open_files import affordable_connections
from gateway.systems.smockron.bounded_log import BoundedLog
from gateway.systems.smockron.codec import (
    Accounting,
    DelayUntil,
    MalformedMessage,
    StatusMessage,
    read_accounting,
    write_control,
)
from gateway.systems.smockron.other_masters import OtherMasters
from gateway.systems.smockron.ports import bound_pairs
from gateway.systems.smockron.zeromq import Frames, Publisher, Sockets, Subscriber
from gateway.systems.smockron.zeromq_peers import Peer

log = logging.getLogger(__name__)

ALL_TOPICS: Final = b""
ENOUGH: Final = 256
"""The most messages that wait for the store; more are left in ZeroMQ."""
CALM_US: Final = 10 * US
"""How long no message may be lost before the log reports the end of the losses: one of several
servers may be down and affect only every other batch."""
LATE_US: Final = 10 * US
"""A message that is older than this means a wrong clock, or too many messages."""


@dataclass(slots=True)
class MasterDomain:
    """The treatment of the messages of one domain.

    Attributes:
        plan: its limits; None if messages are only logged.
        policies: the policies of its limits.
        is_logged: whether every message is logged.
    """

    plan: Plan | None
    policies: tuple[CompiledPolicy, ...]
    is_logged: bool

    @property
    def reach_us(self) -> int:
        """How long a client may have to be held by one of its limits."""
        rules = () if self.plan is None else self.plan.rules
        return furthest_next_us([rule.limit for rule in rules])


class ReceivedReports:
    """Messages to record, and the reports made from them."""

    __slots__ = ("messages", "reports")

    def __init__(self) -> None:
        self.messages: list[Accounting] = []
        self.reports: list[Report] = []


class SmockronMaster:
    """A `Frontend`.

    Attributes:
        made_from: what it cannot change while it serves, from its configuration.

    Args:
        name: its name in the configuration; masters of one name on one store act as one.
        address: of the accounting socket; the control socket has the port above.
        domains: the treatment of their messages, by name.
        reports: the store of histories.
        metrics: counters.
        max_connections: the most peers of each of the two sockets.
        deadline_us: how long the store may take for a batch.
        sharing: of its ports.
        clock: the time of day, in microseconds since 1970.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        domains: dict[str, MasterDomain],
        reports: Reports,
        metrics: FrontendMetrics,
        *,
        max_connections: int,
        deadline_us: int,
        sharing: Sharing,
        clock: Clock = wall_us,
    ) -> None:
        self._address = address
        self._sharing = sharing
        self._max_connections = max_connections
        self.made_from: object = None
        self._domains = domains
        self._reports = reports
        self._at_once = reports if isinstance(reports, MemoryReports) else None
        self._metrics = metrics
        if self._at_once is not None:
            metrics.refresh = self._refresh_metrics
            self._refresh_metrics()
        self._others: OtherMasters | None = None
        if isinstance(reports, SharedReports):
            reaches = _reaches(domains)
            self._others = OtherMasters(reports, name, reaches, self._send, metrics, clock)
        self._deadline_s = deadline_us / US
        self._clock = clock
        self._lines = BoundedLog(clock)
        self._tasks = Tasks()
        self._is_lost = False
        self._lost_us = 0
        self._is_full = False
        self._is_recording = False
        self._recording = 0
        self._received = ReceivedReports()
        self._sockets: Sockets | None = None
        self._accounting: Subscriber | None = None
        self._control: Publisher | None = None

    def reconfigured(
        self, name: str, listener: FrontendConfig, context: FrontendContext
    ) -> Callable[[], object] | None:
        """Prepare to serve as another configuration says; see `Frontend`."""
        is_same = context.metrics.frontend(name) is self._metrics
        if not is_same or self.made_from != _made_from(listener, context):
            return None
        return partial(self._use, _domains_of(listener, context), context.config.store.deadline)

    def _use(self, domains: dict[str, MasterDomain], deadline_us: int) -> None:
        self._domains = domains
        self._deadline_s = deadline_us / US
        if self._others is not None:
            self._others.reconfigure(_reaches(domains))

    @property
    def address(self) -> Address:
        """The address for messages of gatekeepers; they receive at the port above."""
        return self._address

    async def start(self) -> None:
        """Bind both sockets and serve.

        Raises:
            OSError: one of the two ports is not available.
        """
        pairs = await bound_pairs(self._address, self._sharing)
        self._sockets = sockets = Sockets()
        accounting = sockets.subscriber(self._take, [ALL_TOPICS])
        control = sockets.publisher()
        # Before the first peer can connect.
        sockets.watch_peers(accounting, self._max_connections, self._note_gatekeeper)
        sockets.watch_peers(control, self._max_connections, self._note_peer)
        for below, above in pairs:
            accounting.listen(below)
            control.listen(above)
        self._address = Address(self._address.host, accounting.port)
        self._accounting, self._control = accounting, control
        await self._reports.start()
        if self._others is not None:
            self._others.start()
        accounting.start()

    @property
    def sockets(self) -> Sequence[HasNumber]:
        """None: they belong to ZeroMQ; see `Frontend`."""
        return ()

    @property
    def under_way(self) -> int:
        """How many messages the store has not recorded yet."""
        return self._recording + len(self._received.messages)

    async def drain(self, seconds: float) -> int:
        """Accept no more messages, publish the pending results, and close; see `Frontend`."""
        if self._accounting is not None:
            self._accounting.pause()
            self._accounting = None
        await self._tasks.finish(min(seconds, self._deadline_s))
        left = self.under_way
        if self._others is not None:
            await self._others.aclose()
        self._control = None
        if self._sockets is not None:
            await self._sockets.aclose()
            self._sockets = None
        await self._reports.aclose()
        return left

    def _note_gatekeeper(self, peer: Peer) -> None:
        """Count gatekeepers at the accounting socket; each of them is at the control socket too."""
        self._metrics.connections += peer is not Peer.HAS_GONE
        self._metrics.open_connections += (peer is Peer.HAS_COME) - (peer is Peer.HAS_GONE)
        self._note_peer(peer)

    def _note_peer(self, peer: Peer) -> None:
        """Count refused peers, and log the first one."""
        if peer is not Peer.IS_TURNED_AWAY:
            return
        self._metrics.malformed["too_many_connections"] += 1
        if not self._is_full:
            self._is_full = True
            log.warning(
                "smockron: %d gatekeepers are connected, and no more may be (max_connections, and "
                "its part of all open files at most); more that are turned away are only counted",
                self._max_connections,
            )

    def _refresh_metrics(self) -> None:
        if self._at_once is not None:
            self._metrics.records = len(self._at_once)
            self._metrics.record_bytes = self._at_once.used_bytes

    def _take(self, messages: Sequence[Frames]) -> None:
        """Record these messages, and publish the results."""
        now_us = self._clock()
        received = self._received
        for frames in messages:
            try:
                message = read_accounting(frames)
            except MalformedMessage:
                self._metrics.malformed["accounting"] += 1
                continue
            report = self._report_of(message, now_us)
            if report is not None:
                received.messages.append(message)
                received.reports.append(report)
        if not received.reports:
            return
        if self._at_once is not None:
            self._received = ReceivedReports()
            self._publish(received.messages, self._at_once.record_now(received.reports, now_us))
            return
        if len(received.reports) >= ENOUGH and self._accounting is not None:
            self._accounting.pause()
        if not self._is_recording:
            self._is_recording = True
            self._tasks.start(self._record())

    def _report_of(self, message: Accounting, now_us: int) -> Report | None:
        """Return the report to record for a message; None if there is nothing to record."""
        domain = self._domains.get(message.domain)
        operation = message.status.value.decode()
        answers = self._metrics.answers
        if domain is None:
            answers[operation, "unknown_domain"] += 1
            self._lines.write(logging.WARNING, "smockron: there is no domain %a", message.domain)
            return None
        if domain.is_logged:
            self._note(message)
        at_us = message.at_us
        if at_us > now_us + FURTHEST_US or at_us < now_us - LATE_US:
            self._warn_of_time(message, now_us)
            if at_us > now_us:
                answers[operation, "too_far"] += 1
                return None
        _count(message.status, domain.policies)
        answers[operation, "heard"] += 1
        if domain.plan is None or message.status is StatusMessage.REJECTED:
            return None
        question = domain.plan.ask(message.identifier)
        assert question is not None, "an identifier is all that is counted by"
        assert not isinstance(question, MissingKey), "an identifier is all that is counted by"
        return Report(question[0].limits, question[0].keys, at_us)

    def _note(self, message: Accounting) -> None:
        self._lines.write(
            logging.INFO,
            "smockron: %s %a %a %a",
            message.status.value.decode(),
            message.domain,
            message.identifier,
            message.info.decode("utf-8", "replace"),
        )

    def _warn_of_time(self, message: Accounting, now_us: int) -> None:
        self._lines.write(
            logging.WARNING,
            "smockron: a message of the domain %a is %.1f s %s: are all clocks right?",
            message.domain,
            abs(message.at_us - now_us) / US,
            "ahead" if message.at_us > now_us else "old",
        )

    async def _record(self) -> None:
        """Pass messages to the store until none are left, including those that arrive meanwhile."""
        while self._received.reports:
            received, self._received = self._received, ReceivedReports()
            self._recording = len(received.messages)
            if self._accounting is not None:
                self._accounting.start()
            try:
                async with asyncio.timeout(self._deadline_s or None):
                    found = await self._reports.record(received.reports, self._clock())
            except TimeoutError:
                self._count_lost(received.messages, StoreTimeout("no answer within the deadline"))
            except StoreError as error:
                self._count_lost(received.messages, error)
                await asyncio.sleep(0)
            else:
                for message, answer in zip(received.messages, found, strict=True):
                    if isinstance(answer, StoreError):
                        self._count_lost([message], answer)
                if self._is_lost and self._clock() >= self._lost_us + CALM_US:
                    self._is_lost = False
                    log.info(
                        "smockron: the store records messages again; none was lost in %d s",
                        CALM_US // US,
                    )
                self._publish(received.messages, found)
        self._recording = 0
        self._is_recording = False

    def _count_lost(self, messages: Sequence[Accounting], error: StoreError) -> None:
        """Count messages that the store has not recorded; no identifier is held because of them."""
        for message in messages:
            self._metrics.answers[message.status.value.decode(), "lost"] += 1
        self._lost_us = self._clock()
        if not self._is_lost:
            self._is_lost = True
            log.warning(
                "smockron: the store does not record messages (%s: %s); gatekeepers "
                "receive no result for the lost ones",
                error.reason,
                error,
            )

    def _publish(self, messages: Sequence[Accounting], found: Sequence[Answer]) -> None:
        """Publish the clients that have to wait, each with its latest time."""
        waiting = {
            (message.domain, message.identifier): next_us
            for message, next_us in zip(messages, found, strict=True)
            if isinstance(next_us, int) and next_us
        }
        holds = [DelayUntil(*whose, next_us) for whose, next_us in waiting.items()]
        for one in holds:
            self._metrics.answers["DELAY_UNTIL", "sent"] += self._send(one)
        if self._others is not None:
            self._others.tell(holds)

    def _send(self, message: DelayUntil) -> bool:
        """Publish one client; return False if that is not possible."""
        frames = write_control(message)
        if frames is None:
            self._metrics.answers["DELAY_UNTIL", "too_long"] += 1
        elif self._control is not None:
            self._control.send(frames)
        return frames is not None and self._control is not None


def _count(status: StatusMessage, policies: Sequence[CompiledPolicy]) -> None:
    """Count what a gatekeeper did with a request under these policies."""
    for policy in policies:
        if status is StatusMessage.ACCEPTED:
            policy.metrics.passed += 1
        elif status is StatusMessage.DELAYED:
            policy.metrics.delayed += 1
        else:
            policy.metrics.refused += 1


def _reaches(domains: dict[str, MasterDomain]) -> dict[str, int]:
    return {name: domain.reach_us for name, domain in domains.items()}


def _made_from(listener: FrontendConfig, context: FrontendContext) -> object:
    """Return what a master cannot change while it serves."""
    assert listener.smockron is not None, "it is a listener of this kind"
    config = context.config
    return listener.address, _max_connections(listener, context), config.store.url, config.domain


def _max_connections(listener: FrontendConfig, context: FrontendContext) -> int:
    assert listener.smockron is not None, "it is a listener of this kind"
    # It has two sockets.
    affordable = affordable_connections(context.config.listeners) // 2
    return max(min(listener.smockron.max_connections, affordable), 1)


def _domains_of(listener: FrontendConfig, context: FrontendContext) -> dict[str, MasterDomain]:
    assert listener.smockron is not None, "it is a listener of this kind"
    key_of = caller_keys(str, {})
    domains = {}
    for domain, said in listener.smockron.domains.items():
        plan = context.plan_of(key_of, said.policies)
        domains[domain] = MasterDomain(
            plan if plan.rules else None, plan.policies, said.log or not plan.rules
        )
    return domains


def make_master(
    name: str, listener: FrontendConfig, context: FrontendContext, clock: Clock = wall_us
) -> SmockronMaster:
    """Return the master of a listener; see `MakeFrontend`."""
    address = listener.address
    assert isinstance(address, Address), "two ports are no file"
    store = context.config.store
    master = SmockronMaster(
        name,
        address,
        _domains_of(listener, context),
        reports=open_reports(store.url, context.config.domain),
        metrics=context.metrics.frontend(name),
        max_connections=_max_connections(listener, context),
        deadline_us=store.deadline,
        sharing=context.sharing,
        clock=clock,
    )
    master.made_from = _made_from(listener, context)
    return master


def open_reports(url: str, domain: str) -> Reports:
    """Return the store of histories for a gateway with this store."""
    kind = parse_store_url(url).kind
    if kind not in {"redis", "sentinel", "cluster"}:
        return MemoryReports()
    from gateway.stores.redis.reports import RedisClusterReports, RedisReports

    return (RedisClusterReports if kind == "cluster" else RedisReports)(url, domain=domain)
