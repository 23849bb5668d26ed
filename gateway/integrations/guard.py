"""The part that all middlewares share: which policies apply to a request, and the response.

Policies match, count and answer requests as in the gateway: by the same patterns, under the same
keys, with the same statuses, fields and bodies.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

from gateway.base.clock import wall_us
from gateway.base.errors import BadRequestError, ConfigError, Problem
from gateway.config.values.paths import PathError, parse_path, split_pattern
from gateway.http.answer import (
    Answer,
    closed,
    problem,
    refusal,
    throttlex_closed,
    throttlex_refusal,
)
from gateway.http.limit_fields import LimitFields, limit_fields
from gateway.library import Limiter
from gateway.library.decision import split_fields
from gateway.limiter.decider import Outcome, refused_key, refusing_rule
from gateway.limiter.plan import CompiledPolicy, MissingKey, Plan
from gateway.limits.decision import Verdict
from gateway.routing import fields
from gateway.routing.client_address import ClientAddress
from gateway.routing.forwarding import is_origin_field
from gateway.routing.host import normal_host
from gateway.routing.spelling import is_misspelled, reserved_name, spellings_of
from gateway.routing.table import Pattern, RouteTable
from gateway.wiring.field_names import limiting_fields

Names = str | Sequence[str]
Policies = Names | Mapping[str, Names]
"""The policies of all requests, or of those under each pattern, such as `POST /v1/pay`."""

Fields = list[tuple[str, str]]

Hold = Callable[[Coroutine[Any, Any, Outcome]], Awaitable[Outcome]]
"""Awaits a function that ends when a turn has come."""

EVERYTHING: Final = "/**"
_NAMES_MAX: Final = 4096
_NAME_MAX: Final = 64
"""How many header names are cached, and the maximum length of one."""


class Head(NamedTuple):
    """The head of a request, as parsed by the framework.

    Attributes:
        peer: the address of the connection; empty if it has none.
        method: as sent.
        path: as sent, escapes and all.
        query: as sent, without the question mark.
        headers: the fields, as text in UTF-8 with surrogate escapes.
    """

    peer: str
    method: str
    path: str
    query: str
    headers: CIMultiDict[str] | CIMultiDictProxy[str]


class GuardVerdict(NamedTuple):
    """What to do with a request.

    Attributes:
        fields: the rate limit fields for the response.
        answer: the response, if the request is refused.
        slot: the slot to hold while it runs, for limits such as `5 at once`.
    """

    fields: Fields
    answer: Answer | None
    slot: AbstractAsyncContextManager[object] = nullcontext()


_FREE: Final = GuardVerdict([], None)


class _View:
    """The view of a request that keys are made from."""

    __slots__ = ("_head", "client", "client_key", "is_from_proxy")
    # Only the server in front of a middleware has it.
    client_certificate: ClassVar[None] = None

    def __init__(self, head: Head, client: str, client_key: str, *, is_from_proxy: bool) -> None:
        self._head = head
        self.is_from_proxy = is_from_proxy
        self.client = client
        self.client_key = client_key

    @property
    def host(self) -> str:
        raw = self._head.headers.get("host", "")
        return normal_host(raw) if raw else ""

    @property
    def method(self) -> str:
        return self._head.method

    @property
    def path(self) -> str:
        return self._head.path

    @property
    def query(self) -> str:
        return self._head.query

    @property
    def headers(self) -> fields.Fields:
        return self._head.headers


class _GuardedRoute(NamedTuple):
    plan: Plan
    fields: LimitFields | None


async def _await_turn(turn: Coroutine[Any, Any, Outcome]) -> Outcome:
    return await turn


class Guard:
    """Decides on requests with a limiter.

    Args:
        limiter: the limiter; it must be open.
        policies: the policies that apply to requests.

    Raises:
        ConfigError: a pattern is not valid.
        ValueError: there is no such policy; or it counts by a segment that its pattern lacks.
    """

    def __init__(self, limiter: Limiter, policies: Policies) -> None:
        if not isinstance(limiter, Limiter):
            raise TypeError(f"{limiter!r} is not a limiter")
        self._limiter = limiter
        config = limiter.config
        self._addresses = ClientAddress(config.trusted_proxies, config.ipv6_prefix)
        self._everywhere: _GuardedRoute | None = None
        self._table: RouteTable[_GuardedRoute] | None = None
        if isinstance(policies, Mapping):
            self._table = RouteTable(
                [
                    (pattern, self._route(text, names, pattern.path))
                    for text, names in policies.items()
                    for pattern in [_pattern(text)]
                ]
            )
        else:
            self._everywhere = self._route(EVERYTHING, policies, EVERYTHING)

        self._reserved = spellings_of(limiting_fields(config))
        self._is_shadow = lru_cache(_NAMES_MAX)(self._look_at_name)

    def is_shadow(self, name: bytes) -> bool:
        """Return whether a field only looks like one that a limit counts by."""
        return self._is_shadow(name) if len(name) <= _NAME_MAX else self._look_at_name(name)

    def _look_at_name(self, name: bytes) -> bool:
        plain = reserved_name(name)
        return is_misspelled(name, self._reserved) or (
            plain != name.lower() and is_origin_field(plain.decode("latin-1"))
        )

    def _route(self, name: str, names: Names, pattern: str) -> _GuardedRoute:
        plan = self._limiter.plan(" ".join(name.split()), names, pattern)
        return _GuardedRoute(plan, limit_fields(plan.rules))

    async def admit(self, head: Head, hold: Hold = _await_turn) -> GuardVerdict:
        """Decide on a request; if it may wait, return when its turn has come.

        Args:
            head: the head of the request.
            hold: awaits the turn, if there is one; it may end early if the client leaves.
        """
        try:
            return await self._admit(head, hold)
        except BadRequestError as error:
            return GuardVerdict([], problem(error.status, error.title, fields=error.fields))

    async def _admit(self, head: Head, hold: Hold) -> GuardVerdict:
        client = self._addresses.resolve(
            head.peer,
            head.headers.getall("X-Forwarded-For", ()),
            head.headers.getall("Forwarded", ()),
        )
        addresses = self._addresses
        is_from_proxy = addresses.is_trusted(head.peer)
        view = _View(head, client, addresses.bucket(client), is_from_proxy=is_from_proxy)
        route = self._everywhere
        if self._table is not None:
            path = head.path if head.path != "*" else "/"
            route = self._table.find(view.host, path, head.method, head.headers)
        if route is None:
            return _FREE
        question = route.plan.ask(view)
        if question is None:
            for policy in route.plan.policies:
                policy.metrics.skipped += 1
            return _FREE
        if isinstance(question, MissingKey):
            question.policy.metrics.refused += 1
            raise BadRequestError(question.title, question.status, fields=question.fields)
        asker = self._limiter.asker
        outcome = await asker.decide(*question)
        turn = asker.settle(outcome)
        outcome = await (hold(turn) if outcome.verdict.wait_us else turn)
        if outcome.closed_by is not None:
            return GuardVerdict([], _closed(outcome.closed_by, outcome.verdict))
        fields: Fields = []
        if outcome.rules and route.fields is not None:
            fields = split_fields(route.fields.lines(outcome.rules, outcome.verdict))
        if outcome.verdict.allowed:
            return GuardVerdict(fields, None, asker.holding(outcome))
        return GuardVerdict(fields, _refusal(outcome))


def added_fields(names: Iterable[str], fields: Fields) -> tuple[frozenset[str], Fields]:
    """Decide how to add fields to a response that already has some of these names.

    Returns:
        The lower-case names of its own rate limit fields, which ours replace; and the fields to
        add. Its own `Retry-After` is kept.
    """
    present = {name.lower() for name in names}
    added = [one for one in fields if one[0] != "Retry-After" or "retry-after" not in present]
    ours = {name.lower() for name, _ in added}
    is_legacy = any(name.startswith("x-ratelimit-") for name in ours)
    is_draft = any(name.startswith("ratelimit") for name in ours)
    gone = {
        name
        for name in present
        if (is_legacy and name.startswith("x-ratelimit-"))
        or (is_draft and (name == "ratelimit" or name.startswith("ratelimit-")))
    }
    return frozenset(gone), added


def _refusal(outcome: Outcome) -> Answer:
    policy = refusing_rule(outcome).policy
    draw = random.random() if policy.jitter else 0.0  # noqa: S311 - no secret
    if policy.body == "throttlex":
        key = refused_key(outcome)
        return throttlex_refusal(policy, outcome.verdict, key, wall_us(), draw)
    return refusal(policy, outcome.verdict, draw)


def _closed(policy: CompiledPolicy, verdict: Verdict) -> Answer:
    if policy.body == "throttlex":
        return throttlex_closed(verdict.retry_after_us, wall_us())
    return closed(verdict.retry_after_us)


def _pattern(text: str) -> Pattern:
    try:
        parts = split_pattern(text)
        return Pattern(parts.host, parse_path(parts.path), parts.methods)
    except ValueError as error:
        hint = error.hint if isinstance(error, PathError) else ""
        raise ConfigError([Problem("policies", 0, 0, text, str(error), hint)]) from error
