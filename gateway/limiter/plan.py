"""Policies compiled once: what a request runs is plain objects and prepared bytes.

`compile_plan` turns the policies of one route into a `Plan`. At run time
`Plan.ask(request)` gives the question for the store, and the `Rule` of each limit says what
is to happen with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from gateway.config.models.gateway import GatewayConfig, PolicyConfig
from gateway.limits import ALGORITHMS
from gateway.limits.consistency_mode import Eventual, Terms
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.key_words import as_written
from gateway.limits.rate import NS_PER_US, Limit
from gateway.limits.throttlex import Numbers, limit_of, scope_of
from gateway.observe.metrics import GatewayMetrics, PolicyMetrics
from gateway.routing.keys import SKIP, Key, compile_key
from gateway.routing.throttlex_key import compile_throttlex_key
from gateway.routing.values import AMBIGUOUS
from gateway.stores.base import Ask, Introduced

UNBOUNDED_WAIT_US: Final = 2**62
"""An ask that leaves the bound on waiting to each limit."""
MAX_KNOWN: Final = 4_096
"""Numbers of a book whose limits are kept; of more, they are made anew."""


KeyOf = Callable[[Any], Key]
"""From a request, or whatever a front end has in its place, to the identity that is counted."""

CompileKey = Callable[[Sequence[str], str], KeyOf]
"""From the words after `per` and a policy's `if_missing` to what finds the key."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """What happens to the requests that a policy's limits refuse, delay or cannot decide.

    Attributes:
        name: as configured; it appears in headers, metrics, logs and store keys.
        queue_max: how many requests may wait for one key; 0 means no queue.
        status: of a refusal, 429 or 503.
        body: `problem`, `text`, `throttlex`, `none`, or the text to send.
        on_store_error: `local`, `open` or `closed`.
        draft_headers: whether answers carry `RateLimit` and `RateLimit-Policy`.
        legacy_headers: whether answers carry `X-RateLimit-*`.
        metrics: its counters.
        terms: how exactly its limits are kept among gateways; None for strict.
        max_wait_us: how long a request in the queue may wait.
        throttlex_headers: whether answers carry what ThrottleX's do.
        book: the numbers of keys that have some of their own; None if no key has.
    """

    name: str
    queue_max: int
    status: int
    body: str
    on_store_error: str
    draft_headers: bool
    legacy_headers: bool
    metrics: PolicyMetrics
    terms: Terms | None = None
    max_wait_us: int = 0
    throttlex_headers: bool = False
    book: KeyOverrides | None = None


class Rule(NamedTuple):
    """One limit of one policy, ready to run.

    Attributes:
        policy: what it belongs to.
        limit: the numbers.
        key: from a request to the identity that is counted.
        title: the name of this limit in the `RateLimit` fields.
        word: what it counts by, as somebody would write it, such as `header:x-api-key`.
    """

    policy: CompiledPolicy
    limit: Limit
    key: KeyOf
    title: str
    word: str


class Missing(NamedTuple):
    """A request that must not pass uncounted, and nobody knows how to count.

    Attributes:
        policy: that counts it; with `if_missing: reject` if the request lacks
        word: what it is counted by, as somebody would write it.
        is_ambiguous: whether the request has it, with several values.
    """

    policy: CompiledPolicy
    word: str
    is_ambiguous: bool = False

    @property
    def title(self) -> str:
        """What its client is told."""
        if self.is_ambiguous:
            return f"The request has several values of what it is counted by: {self.word}"
        return f"The request lacks what it is counted by: {self.word}"


class Plan:
    """All the rules that apply to the requests of one route."""

    __slots__ = ("_asked", "_key", "_limits", "_single", "holds", "policies", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._asked: dict[tuple[int, ...], tuple[tuple[Limit, ...], tuple[Rule, ...]]] = {}
        self.policies = tuple(dict.fromkeys(rule.policy for rule in self.rules))
        self._limits = tuple(rule.limit for rule in self.rules)
        # Whether a request keeps anything for as long as it lasts.
        self.holds = any(ALGORITHMS[limit.algorithm].renew is not None for limit in self._limits)
        self._single = len(self.rules) == 1
        self._key = self.rules[0].key if self.rules else None

    def __repr__(self) -> str:
        names = ", ".join(policy.name for policy in self.policies)
        return f"<Plan of {len(self.rules)} limits: {names}>"

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | Missing | None:
        """The question for the store, with the rules it is about.

        None if no rule counts this request; `Missing` if one must not let it pass uncounted.
        """
        if self._single:
            key = self._key(request)  # type: ignore[misc]
            if type(key) is str:
                return Ask(self._limits, (key,), 1, UNBOUNDED_WAIT_US), self.rules
        keys: list[str] = []
        counts: list[int] = []
        for rule in self.rules:
            key = rule.key(request)
            if isinstance(key, str):
                keys.append(key)
                counts.append(1)
            elif isinstance(key, tuple):
                # Nobody knows which of these cookies counts: none of them is a way round.
                keys += key
                counts.append(len(key))
            elif key is SKIP:
                counts.append(0)
            else:
                return Missing(rule.policy, rule.word, key is AMBIGUOUS)
        if not keys:
            return None
        limits, rules = self._of(tuple(counts))
        return Ask(limits, tuple(keys), 1, UNBOUNDED_WAIT_US), rules

    def _of(self, counts: tuple[int, ...]) -> tuple[tuple[Limit, ...], tuple[Rule, ...]]:
        """Limits and rules, each as often as there are keys for it.

        They are always the same objects, by which stores know them.
        """
        known = self._asked.get(counts)
        if known is None:
            rules = tuple(
                [rule for rule, count in zip(self.rules, counts, strict=True) for _ in range(count)]
            )
            known = tuple([rule.limit for rule in rules]), rules
            if rules == self.rules:
                known = self._limits, self.rules
            if len(self._asked) >= MAX_KNOWN:
                self._asked.clear()
            self._asked[counts] = known
        return known


class ReportedPlan(Plan):
    """A plan for a store that reports requests: its asks say something about them, for logs."""

    __slots__ = ()

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | Missing | None:
        """See `Plan.ask`."""
        question = super().ask(request)
        if question is None or isinstance(question, Missing):
            return question
        ask, rules = question
        introduced = Introduced(*ask)
        agent = request.headers.get("User-Agent", "")
        about = f"{request.method} {request.host} {agent}"
        introduced.about = about.encode("utf-8", "surrogateescape")
        return introduced, rules


class KeyedPlan(Plan):
    """A plan in which the numbers of a limit may depend on the key."""

    __slots__ = ("_keyed",)

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__(rules)
        self._keyed = KeyedRules()

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | Missing | None:
        """The question for the store, with rules that have the numbers of the request's keys."""
        question = super().ask(request)
        if question is None or isinstance(question, Missing):
            return question
        return self._keyed.resolve(*question)


class KeyedRules:
    """Finds the numbers of keys in the books of their policies."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, Numbers], Rule] = {}

    def resolve(self, ask: Ask, rules: tuple[Rule, ...]) -> tuple[Ask, tuple[Rule, ...]]:
        """The same question by the numbers that its keys have now."""
        _, keys, cost, max_wait_us = ask
        found = tuple(
            [
                rule if rule.policy.book is None else self._of_key(rule, key)
                for rule, key in zip(rules, keys, strict=True)
            ]
        )
        return Ask(tuple([rule.limit for rule in found]), keys, cost, max_wait_us), found

    def _of_key(self, rule: Rule, key: str) -> Rule:
        book = rule.policy.book
        numbers = book.find(key) if book is not None else None
        if numbers is None:
            return rule
        name = (id(rule), numbers)
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            limit = limit_of(numbers, scope_of(rule.policy.name, numbers))
            limit = replace(limit, debt=limit.burst) if rule.limit.debt else limit
            if limit.burst:
                limit = _bounded(limit, rule.policy.max_wait_us, rule.policy.queue_max)
            known = self._known[name] = rule._replace(limit=limit)
        return known


def compile_policy(
    name: str, config: PolicyConfig, metrics: PolicyMetrics, book: KeyOverrides | None = None
) -> CompiledPolicy:
    """The run-time form of a policy; its limits are compiled with the route, by `compile_plan`.

    Args:
        name: as configured.
        config: the policy.
        metrics: its counters.
        book: what the table of policies says, for those who heed it.
    """
    is_keyed = config.throttlex is not None and config.throttlex.policies == "table"
    return CompiledPolicy(
        name=name,
        queue_max=config.queue.max if config.queue else 0,
        status=config.on_limit.status,
        body=config.on_limit.body,
        on_store_error=config.on_store_error,
        draft_headers=config.headers in ("draft", "both"),
        legacy_headers=config.headers in ("legacy", "both"),
        metrics=metrics,
        terms=config.terms,
        max_wait_us=config.queue.max_wait if config.queue else 0,
        throttlex_headers=config.headers == "throttlex",
        book=book if is_keyed else None,
    )


def compile_policies(
    config: GatewayConfig, metrics: GatewayMetrics, book: KeyOverrides | None = None
) -> dict[str, CompiledPolicy]:
    """The run-time form of every policy of a configuration, by name; `book` as above."""
    return {
        name: compile_policy(name, policy, metrics.policy(name), book)
        for name, policy in config.policies.items()
    }


class RouteKeys:
    """Makes what finds the keys of HTTP requests: a `CompileKey`.

    Args:
        route: the name of their route, which the key word `route` stands for.
    """

    __slots__ = ("_route",)

    def __init__(self, route: str) -> None:
        self._route = route

    def __call__(self, per: Sequence[str], if_missing: str) -> KeyOf:
        """What finds a key of our own form."""
        return compile_key(per, if_missing=if_missing, route=self._route)

    def of_throttlex(self, labels: Sequence[str], per: Sequence[str], if_missing: str) -> KeyOf:
        """What finds a key in ThrottleX's form."""
        return compile_throttlex_key(labels, per, if_missing=if_missing, route=self._route)


def compile_plan(
    key_of: CompileKey,
    names: Sequence[str],
    policies: dict[str, PolicyConfig],
    compiled: dict[str, CompiledPolicy],
) -> Plan:
    """Compile the policies of one route.

    Args:
        key_of: makes what finds the keys of its requests, such as `RouteKeys`.
        names: the policies that apply, in order.
        policies: every policy's configuration.
        compiled: every policy's run-time form, shared between routes.
    """
    rules: list[Rule] = []
    for name in names:
        config = policies[name]
        policy = compiled[name]
        # Where turns are not given by a store, how late one is does not tell how many wait.
        queue_max = 0 if isinstance(policy.terms, Eventual) else policy.queue_max
        lines = zip(config.limits, limits_of(name, config), strict=True)
        for position, (line, known) in enumerate(lines, start=1):
            limit = _bounded(known, known.max_wait_us, queue_max)
            if config.throttlex is not None and isinstance(key_of, RouteKeys):
                key = key_of.of_throttlex(config.throttlex.per, line.per, config.if_missing)
            else:
                key = key_of(line.per, config.if_missing)
            title = name if len(config.limits) == 1 else f"{name}-{position}"
            rules.append(Rule(policy, limit, key, title, as_written(line.per)))
    if sum(policies[name].throttlex is not None for name in names) > 1:
        raise ValueError("two policies of throttlex would count a request under one key")
    return (KeyedPlan if is_keyed(rules) else Plan)(rules)


def limits_of(name: str, config: PolicyConfig) -> list[Limit]:
    """The limits of a policy, each with the scope that it is known by in a store.

    The numbers are no part of that, so that changing them keeps the counts.
    """
    limits: list[Limit] = []
    seen: dict[str, int] = {}
    for line in config.limits:
        per = "+".join(line.per)
        seen[per] = seen.get(per, 0) + 1
        scope = f"{name}/{per}" if seen[per] == 1 else f"{name}/{per}#{seen[per]}"
        scope = scope if config.throttlex is None else scope_of(name)
        limits.append(replace(line.limit, scope=scope))
    return limits


def is_keyed(rules: Sequence[Rule]) -> bool:
    """Whether the numbers of one of these depend on the key."""
    return any(rule.policy.book is not None for rule in rules)


def _bounded(limit: Limit, max_wait_us: int, queue_max: int) -> Limit:
    """A limit with its queue: no longer than `max_wait_us`, nor than `queue_max` turns take."""
    if queue_max and limit.algorithm in ("token_bucket", "paced_history"):
        # The last of `max` waiting requests waits for `max` intervals: bounding the
        # wait bounds the queue, in the store and so over all gateways.
        longest_us = queue_max * limit.interval_ns // NS_PER_US
        max_wait_us = min(max_wait_us, longest_us)
    return replace(limit, max_wait_us=max_wait_us)
