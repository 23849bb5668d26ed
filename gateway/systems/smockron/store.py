"""A gatekeeper of Smockron: decides from memory and reports afterwards.

A master (of Sluice or Smockron's own) receives a report of every admitted request, and publishes
until when the next requests of an identifier wait. The gatekeeper keeps these times: a request
whose time has come passes; one that would not wait too long waits for a turn, `1 / rate` after the
one before; the others are refused. Requests never wait for the master: if it is down or slow, they
pass.

The master keeps the counts. This store only knows which clients have to wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from gateway.base.clock import US, Clock, wall_us
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.paced_history import interval_us
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, DescribedAsk
from gateway.systems.smockron.codec import (
    Accounting,
    DelayUntil,
    MalformedMessage,
    StatusMessage,
    read_control,
    topic,
    write_accounting,
)
from gateway.systems.smockron.store_url import parse_smockron_url
from gateway.systems.smockron.zeromq import Frames, Publisher, Sockets, Subscriber

log = logging.getLogger(__name__)

WHOLE: Final = 100_000
"""Shares are stored in thousandths of a percent."""
MAX_HELD: Final = 100_000
"""The most identifiers of one domain that are kept."""
FURTHEST_US: Final = 120 * US
"""How long a master may hold an identifier, in addition to `1 / rate`: more is a mistake or an
attack. Sluice reports no request that waits longer than a minute."""
QUIET_US: Final = 60 * US
"""The least time between two log lines about the same problem with messages."""
DOUBT_S: Final = 1
"""If the master is not connected by then, this is logged."""


class HeldDomain:
    """The held identifiers of one domain.

    Args:
        name: its name at the master.
        plain: converts a limit's identity to the identifier that other gatekeepers use.
    """

    __slots__ = ("furthest_us", "held", "name", "plain")

    def __init__(self, name: str, plain: Callable[[str], str]) -> None:
        self.name = name
        self.plain = plain
        # Not a `dict`: finding its first key means passing all removed ones before it.
        self.held: OrderedDict[str, int] = OrderedDict()
        self.furthest_us = FURTHEST_US

    def expect(self, longest_us: int, pace_us: int) -> None:
        """Accept times for requests that wait this long at most, and are this far apart."""
        furthest_us = max(FURTHEST_US, longest_us) + 2 * pace_us
        self.furthest_us = max(self.furthest_us, furthest_us)

    def hold(self, identifier: str, until_us: int, now_us: int) -> None:
        """Keep a time, unless a later one is known."""
        held = self.held
        known_us = self.until(identifier, now_us)
        held.pop(identifier, None)
        held[identifier] = max(until_us, known_us)
        if not known_us:
            # Two for each new one: this keeps the memory bounded without a task.
            self._forget(2, now_us)
            if len(held) > MAX_HELD:
                held.popitem(last=False)

    def until(self, identifier: str, now_us: int) -> int:
        """Return until when requests of an identifier are held; 0 if they are not.

        A time further ahead than was ever accepted means that the clock went back.
        """
        until_us = self.held.get(identifier, 0)
        return until_us if now_us < until_us <= now_us + self.furthest_us else 0

    def _forget(self, number: int, now_us: int) -> None:
        for _ in range(number):
            oldest = next(iter(self.held))
            if self.held[oldest] > now_us:
                return
            del self.held[oldest]


class _DomainVerdict(NamedTuple):
    """The decision of one domain on a request.

    Attributes:
        domain: the domain.
        identifier: the client.
        at_us: when it may proceed.
        pace_us: how much later the next one may.
        longest_us: how long it would wait.
    """

    domain: HeldDomain
    identifier: str
    at_us: int
    pace_us: int
    longest_us: int


class _PendingReport(NamedTuple):
    """A report that is sent at the end of this turn of the loop."""

    decisions: Sequence[Decision]
    messages: list[Accounting]


class SmockronStore:
    """An `ImmediateStore` that does not know how much is left.

    Args:
        url: `smockron://host[:port]`, with `?rejected=` the share of refused requests that are
            reported, and `&domain=` the domain of all limits; by default, each limit's domain is
            the name of its policy.
        domain: not used; masters have no such namespace.
        deadline_us: not used; decisions do not wait for the master.
        clock: the time of day, in microseconds since 1970.

    Attributes:
        domains: the domains, by name.
        messages: see `MessagingStore`.

    Raises:
        ValueError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        domain: str = "",
        deadline_us: int = 0,
        clock: Clock = wall_us,
    ) -> None:
        self._host, self._port, self._only_domain, share = parse_smockron_url(url)
        self._share = round(share * WHOLE)
        self._owed = 0
        self._clock = clock
        self.domains: dict[str, HeldDomain] = {}
        self._scopes: dict[str, HeldDomain] = {}
        self._pending: list[_PendingReport] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sockets: Sockets | None = None
        self._accounting: Publisher | None = None
        self._control: Subscriber | None = None
        self._quiet_until_us: dict[str, int] = {}
        self._is_connected = False
        self._has_listened = False
        self.messages: defaultdict[tuple[str, str], int] = defaultdict(int)

    def __repr__(self) -> str:
        held = sum(len(domain.held) for domain in self.domains.values())
        return f"<SmockronStore {self._host}:{self._port}, {held} identifiers held>"

    @property
    def is_ready(self) -> bool:
        """Whether the master is connected; asks are answered in any case."""
        return self._is_connected

    @property
    def gateways(self) -> int:
        """Always 1: gatekeepers do not know each other."""
        return 1

    def expect(self, policies: Mapping[str, Sequence[Limit]]) -> None:
        """Announce the limits before `start`, so that no message of the master is missed.

        Args:
            policies: limits, by the name of their policy.
        """
        for policy, limits in policies.items():
            for limit in limits:
                domain = self._domain(self._only_domain or policy, limit.scope)
                domain.expect(limit.max_wait_us, interval_us(limit))
                self._scopes[limit.scope] = domain

    async def start(self) -> None:
        """Connect in the background."""
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets = Sockets()
        self._accounting = sockets.publisher(tells_drops=True)
        self._control = sockets.subscriber(self.hear, [topic(name) for name in self.domains])
        sockets.watch(self._control, self._note_connection)
        sockets.watch(self._accounting, self._note_listener)
        self._accounting.connect(self._host, self._port)
        self._control.connect(self._host, self._port + 1)
        self._control.start()
        self._loop.call_later(DOUBT_S, self._log_disconnected)

    async def aclose(self) -> None:
        """Send the pending reports, and close."""
        self._send_reports()
        if self._control is not None:
            self._control.pause()
        self._accounting = self._control = None
        if self._sockets is not None:
            await self._sockets.aclose()
            self._sockets = None
        self._is_connected = False

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch; see `decide_now`."""
        return [self.decide_now(ask) for ask in asks]

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """See `give_back_now`."""
        self.give_back_now(ask, verdict)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Return whether it was admitted: this store has no limits with leases."""
        return verdict.allowed

    def renew_now(self, ask: Ask, verdict: Verdict) -> bool:
        """Likewise."""
        return verdict.allowed

    def decide_now(self, ask: Ask) -> Verdict:
        """Decide on one request, and report it; a cost of n counts as n simultaneous requests."""
        now_us = self._clock()
        turns = [
            self._turn(limit, key, ask, now_us)
            for limit, key in zip(ask.limits, ask.keys, strict=True)
        ]
        decisions = [
            _decision(limit, turn, ask.cost, now_us)
            for limit, turn in zip(ask.limits, turns, strict=True)
        ]
        verdict = combine(tuple(decisions))
        if ask.cost:
            self._commit(ask, turns, verdict, now_us)
        return verdict

    def give_back_now(self, ask: Ask, verdict: Verdict) -> None:
        """Undo an allowed decision.

        In the same turn of the loop, the report has not been sent yet, and the master receives a
        refusal instead. Later, the turn of a request that waited is free for the next one here.
        """
        if not verdict.allowed or not ask.cost:
            return
        for reported in reversed(self._pending):
            if reported.decisions is verdict.decisions:
                messages = [
                    message._replace(status=StatusMessage.REJECTED) for message in reported.messages
                ]
                reported.messages[:] = messages if self._is_sampled() else []
                break
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            domain = self._scope(limit)
            identifier = domain.plain(key)
            after_us = decision.receipt + interval_us(limit) * ask.cost
            if decision.wait_us and domain.held.get(identifier) == after_us:
                domain.held[identifier] = decision.receipt

    def _turn(self, limit: Limit, key: str, ask: Ask, now_us: int) -> _DomainVerdict:
        domain = self._scope(limit)
        identifier = domain.plain(key)
        longest_us = min(limit.max_wait_us, ask.max_wait_us)
        pace_us = interval_us(limit) * ask.cost
        domain.expect(longest_us, pace_us)
        until_us = domain.until(identifier, now_us)
        if not until_us:
            domain.held.pop(identifier, None)
        return _DomainVerdict(domain, identifier, until_us or now_us, pace_us, longest_us)

    def _commit(
        self, ask: Ask, turns: Sequence[_DomainVerdict], verdict: Verdict, now_us: int
    ) -> None:
        """Take the turns and report, once for each domain that counts the request."""
        at_us = now_us + verdict.wait_us
        messages: list[Accounting] = []
        reported: set[tuple[str, str]] = set()
        about = ask.about if isinstance(ask, DescribedAsk) else b""
        for turn, decision in zip(turns, verdict.decisions, strict=True):
            name = (turn.domain.name, turn.identifier)
            if verdict.allowed:
                if decision.wait_us:
                    turn.domain.hold(turn.identifier, at_us + turn.pace_us, now_us)
                if name in reported:
                    continue
                status = StatusMessage.DELAYED if verdict.wait_us else StatusMessage.ACCEPTED
                message = Accounting(
                    turn.domain.name, status, turn.identifier, now_us, at_us, about
                )
                messages += [message] * ask.cost
            elif not decision.allowed and name not in reported and self._is_sampled():
                status = StatusMessage.REJECTED
                name_of = turn.domain.name
                messages.append(Accounting(name_of, status, turn.identifier, now_us, 0, about))
            reported.add(name)
        if messages and self._loop is not None:
            if not self._pending:
                self._loop.call_soon(self._send_reports)
            self._pending.append(_PendingReport(verdict.decisions, messages))

    def _is_sampled(self) -> bool:
        """Return whether this refused request is reported."""
        self._owed += self._share
        if self._owed < WHOLE:
            return False
        self._owed -= WHOLE
        return True

    def _send_reports(self) -> None:
        reported, self._pending = self._pending, []
        accounting = self._accounting
        if accounting is not None:
            for one in reported:
                for message in one.messages:
                    is_sent = accounting.send(write_accounting(message)) and self._has_listened
                    outcome = "sent" if is_sent else "dropped"
                    self.messages[message.status.value.decode(), outcome] += 1

    def hear(self, messages: Sequence[Frames]) -> None:
        """Process messages of the master."""
        now_us = self._clock()
        for frames in messages:
            try:
                message = read_control(frames)
            except MalformedMessage as error:
                self.messages["control", "malformed"] += 1
                self._complain("cannot be read", str(error), now_us)
                continue
            if message is None:
                self.messages["control", "unknown"] += 1
            else:
                self.messages["DELAY_UNTIL", self._hold(message, now_us)] += 1

    def _hold(self, message: DelayUntil, now_us: int) -> str:
        """Hold the identifier that the master names, if this is plausible; return the result."""
        domain = self.domains.get(message.domain)
        if domain is None:
            return "unknown_domain"
        if message.until_us <= now_us:
            return "past"
        if message.until_us > now_us + domain.furthest_us:
            seconds = (message.until_us - now_us) / US
            self._complain("are ignored", f"{seconds:.0f} s ahead is too far", now_us)
            return "too_far"
        domain.hold(message.identifier, message.until_us, now_us)
        return "heard"

    def _complain(self, what: str, why: str, now_us: int) -> None:
        if now_us >= self._quiet_until_us.get(what, 0):
            self._quiet_until_us[what] = now_us + QUIET_US
            log.warning("messages of Smockron's master %s: %s", what, why)

    def _note_listener(self, is_connected: bool) -> None:  # noqa: FBT001 - a state
        """Note whether the master is there. From the first time on, reports wait for it."""
        self._has_listened = self._has_listened or is_connected

    def _note_connection(self, is_connected: bool) -> None:  # noqa: FBT001 - a state
        if is_connected == self._is_connected:
            return
        self._is_connected = is_connected
        if is_connected:
            log.info("connected to Smockron's master at %s:%d", self._host, self._port)
        else:
            self._log_disconnected()

    def _log_disconnected(self) -> None:
        if not self._is_connected and self._control is not None:
            where = f"{self._host}:{self._port}"
            log.warning(
                "Smockron's master at %s is unavailable; no further identifiers are held until "
                "it is back",
                where,
            )

    def _scope(self, limit: Limit) -> HeldDomain:
        domain = self._scopes.get(limit.scope)
        if domain is None:
            policy = limit.scope.partition("/")[0]
            domain = self._domain(self._only_domain or policy, limit.scope)
            self._scopes[limit.scope] = domain
            if self._control is not None:
                self._control.subscribe(topic(domain.name))
        return domain

    def _domain(self, name: str, scope: str) -> HeldDomain:
        domain = self.domains.get(name)
        if domain is None:
            domain = self.domains[name] = HeldDomain(name, plain_of(scope))
        return domain


def plain_of(scope: str) -> Callable[[str], str]:
    """Return a function that converts identities to the identifiers of other gatekeepers.

    An identity of one value, such as a header field's, becomes that value. An identity of several
    parts stays as it is, and so does the one for a missing value.

    Args:
        scope: of the limit; its keys follow the last `/`.
    """
    word = scope.rpartition("/")[2].partition("#")[0]
    if "+" in word or word in {"ip", "all", "route"}:
        return str
    label = f"{word}="

    def plain(key: str) -> str:
        value = key.removeprefix(label)
        if not value or value == key:
            return key
        data = unquote_to_bytes(value)
        try:
            # Bytes that were not UTF-8 are lone surrogates in identities.
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            # It was too long, and was cut inside a character.
            return data.decode("utf-8", "surrogateescape")

    return plain


def _decision(limit: Limit, turn: _DomainVerdict, cost: int, now_us: int) -> Decision:
    wait_us = turn.at_us - now_us
    if cost > limit.burst:
        return Decision(False, 0, NEVER, limit.burst, 0, wait_us, 0)
    remaining = 0 if wait_us else limit.burst
    if not cost:
        return Decision(True, 0, 0, limit.burst, remaining, wait_us, 0)
    if wait_us > turn.longest_us:
        return Decision(False, 0, wait_us, limit.burst, 0, wait_us, 0)
    return Decision(True, wait_us, 0, limit.burst, remaining, wait_us, turn.at_us)
