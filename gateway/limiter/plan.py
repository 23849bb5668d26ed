"""The limits of one route, ready to run: plain objects and prepared bytes.

`gateway.wiring.policies` compiles a `Plan` from a configuration. At run time `Plan.ask(request)`
returns the ask for the store, and the `Rule` of each limit says what to do with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from gateway.limits import ALGORITHMS
from gateway.limits.consistency_mode import PARTS_PER_WHOLE, Terms
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.rate import NS_PER_US, Limit
from gateway.limits.throttlex import Numbers, limit_of, scope_of
from gateway.observe.metrics import PolicyMetrics
from gateway.routing.challenge import challenge_fields
from gateway.routing.keys import SKIP, UNAUTHORIZED, Key
from gateway.routing.values import AMBIGUOUS
from gateway.stores.base import Ask, DescribedAsk

UNBOUNDED_WAIT_US: Final = 2**62
"""The bound of an ask that leaves the bound on waiting to each limit."""
MAX_KNOWN: Final = 4_096
"""Numbers of a book whose limits are cached; any others are built for each request."""


KeyOf = Callable[[Any], Key]
"""Returns the counted identity of a request, or of what a front end has in its place."""

CompileKey = Callable[[Sequence[str], str], KeyOf]
"""Compiles the words after `per` and a policy's `if_missing` to a function that returns the key."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPolicy:
    """What happens to the requests that a policy's limits refuse, delay or cannot decide.

    Attributes:
        name: as configured; it appears in headers, metrics, logs and store keys.
        queue_max: how many requests may wait for one key; 0 means no queue.
        status: the status of a refusal, 429 or 503.
        body: `problem`, `text`, `throttlex`, `none`, or the text to send.
        on_store_error: `local`, `open` or `closed`.
        draft_headers: whether responses carry `RateLimit` and `RateLimit-Policy`.
        legacy_headers: whether responses carry `X-RateLimit-*`.
        metrics: its counters.
        terms: how exactly its limits are kept among gateways; None for strict.
        max_wait_us: how long a request in the queue may wait.
        throttlex_headers: whether responses carry the headers of ThrottleX.
        overrides: the numbers of keys that have their own; None if no key has.
        enforced_parts: for how many keys it is enforced, in parts of `PARTS_PER_WHOLE`; for the
            others it only decides and counts.
        has_tiers: whether its limits depend on the request.
        jitter: by how much `Retry-After` is lengthened at most, in parts of `PARTS_PER_WHOLE`.
        key_hash: replaces its keys, if they are secret; None if they are not.
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
    overrides: KeyOverrides | None = None
    enforced_parts: int = PARTS_PER_WHOLE
    has_tiers: bool = False
    jitter: int = 0
    key_hash: Callable[[str], str] | None = None


class Rule(NamedTuple):
    """One limit of one policy, ready to run.

    Attributes:
        policy: the policy it belongs to.
        limit: the numbers.
        key: returns the counted identity of a request.
        title: the name of this limit in the `RateLimit` fields.
        word: what it counts by, as written in a configuration, such as `header:x-api-key`.
    """

    policy: CompiledPolicy
    limit: Limit
    key: KeyOf
    title: str
    word: str


class MissingKey(NamedTuple):
    """A request that must not pass uncounted, but has no usable key.

    Attributes:
        policy: the policy that counts it; with `if_missing: reject` or `unauthorized` if the
            request has no key.
        word: what it is counted by, as written in a configuration.
        is_ambiguous: whether the request has the key, with several values.
        is_unauthorized: whether its client is told to authenticate itself.
    """

    policy: CompiledPolicy
    word: str
    is_ambiguous: bool = False
    is_unauthorized: bool = False

    @property
    def status(self) -> int:
        """The status of the response to its client."""
        return 401 if self.is_unauthorized else 400

    @property
    def fields(self) -> bytes:
        """Header lines of that response: the challenges of a 401, with the policy as realm."""
        if not self.is_unauthorized:
            return b""
        return challenge_fields(self.word.split("+"), self.policy.name)

    @property
    def title(self) -> str:
        """The title of the response to its client."""
        if self.is_ambiguous:
            return f"The request has several values of what it is counted by: {self.word}"
        return f"The request lacks what it is counted by: {self.word}"


class Plan:
    """All the rules that apply to the requests of one route.

    Args:
        rules: the rules.
        cost: what each request costs.
    """

    __slots__ = ("_asked", "_keys", "_limits", "cost", "holds", "policies", "rules")

    def __init__(self, rules: Sequence[Rule], cost: int = 1) -> None:
        self.rules = tuple(rules)
        self.cost = cost
        self._asked: dict[tuple[int, ...], tuple[tuple[Limit, ...], tuple[Rule, ...]]] = {}
        self.policies = tuple(dict.fromkeys(rule.policy for rule in self.rules))
        self._limits = tuple(rule.limit for rule in self.rules)
        # Whether a request holds anything while it is in flight.
        self.holds = any(ALGORITHMS[limit.algorithm].renew is not None for limit in self._limits)
        self._keys = tuple(rule.key for rule in self.rules)

    def __repr__(self) -> str:
        names = ", ".join(policy.name for policy in self.policies)
        return f"<Plan of {len(self.rules)} limits: {names}>"

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Return the rules that may apply to a request."""
        return self.rules

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | MissingKey | None:
        """Return the ask for the store, with the rules of its limits.

        None if no rule counts this request; `MissingKey` if a rule must not let it pass uncounted.
        """
        keys = self._keys
        if len(keys) == 1:
            key = keys[0](request)
            if type(key) is str:
                return Ask(self._limits, (key,), self.cost, UNBOUNDED_WAIT_US), self.rules
            return self._ask_unusual([key])
        if not keys:
            return None
        found = [key_of(request) for key_of in keys]
        identities: list[str] = []
        for key in found:
            if type(key) is not str:
                return self._ask_unusual(found)
            identities.append(key)
        return Ask(self._limits, tuple(identities), self.cost, UNBOUNDED_WAIT_US), self.rules

    def _ask_unusual(
        self, found: Sequence[Key]
    ) -> tuple[Ask, tuple[Rule, ...]] | MissingKey | None:
        """Return the ask, where limits count several identities of a request, or none."""
        keys: list[str] = []
        counts: list[int] = []
        for rule, key in zip(self.rules, found, strict=True):
            if isinstance(key, str):
                keys.append(key)
                counts.append(1)
            elif isinstance(key, tuple):
                # It is not known which of these cookies counts: none of them may bypass the limit.
                keys += key
                counts.append(len(key))
            elif key is SKIP or rule.policy.enforced_parts < PARTS_PER_WHOLE:
                # A policy that is tried out refuses nothing.
                counts.append(0)
            else:
                return MissingKey(rule.policy, rule.word, key is AMBIGUOUS, key is UNAUTHORIZED)
        if not keys:
            return None
        limits, rules = self._of(tuple(counts))
        return Ask(limits, tuple(keys), self.cost, UNBOUNDED_WAIT_US), rules

    def _of(self, counts: tuple[int, ...]) -> tuple[tuple[Limit, ...], tuple[Rule, ...]]:
        """Return limits and rules, each repeated for each of its keys.

        They are always the same objects, since stores identify them by object.
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


PlanOf = Callable[[CompileKey, Sequence[str]], Plan]
"""Makes a plan from a key compiler and the names of policies."""


class ReportedPlan(Plan):
    """A plan for a store that reports requests: its asks also describe the request, for logs."""

    __slots__ = ()

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | MissingKey | None:
        """See `Plan.ask`."""
        question = super().ask(request)
        if question is None or isinstance(question, MissingKey):
            return question
        ask, rules = question
        introduced = DescribedAsk(*ask)
        agent = request.headers.get("User-Agent", "")
        about = f"{request.method} {request.host} {agent}"
        introduced.about = about.encode("utf-8", "surrogateescape")
        return introduced, rules


class KeyedPlan(Plan):
    """A plan in which the numbers of a limit may depend on the key."""

    __slots__ = ("_keyed",)

    def __init__(self, rules: Sequence[Rule], cost: int = 1) -> None:
        super().__init__(rules, cost)
        self._keyed = KeyedRules()

    def ask(self, request: Any) -> tuple[Ask, tuple[Rule, ...]] | MissingKey | None:
        """Return the ask for the store, with rules that have the numbers of the request's keys."""
        question = super().ask(request)
        if question is None or isinstance(question, MissingKey):
            return question
        return self._keyed.resolve(*question)


class KeyedRules:
    """Looks up the numbers of keys in the books of their policies."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, Numbers], Rule] = {}

    def resolve(self, ask: Ask, rules: tuple[Rule, ...]) -> tuple[Ask, tuple[Rule, ...]]:
        """Return the same ask with the current numbers of its keys."""
        found = tuple(
            [
                rule if rule.policy.overrides is None else self._of_key(rule, key)
                for rule, key in zip(rules, ask.keys, strict=True)
            ]
        )
        return ask._replace(limits=tuple([rule.limit for rule in found])), found

    def _of_key(self, rule: Rule, key: str) -> Rule:
        overrides = rule.policy.overrides
        numbers = overrides.find(key) if overrides is not None else None
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
                limit = bounded(limit, rule.policy.max_wait_us, rule.policy.queue_max)
            known = self._known[name] = rule._replace(limit=limit)
        return known


def is_keyed(rules: Sequence[Rule]) -> bool:
    """Return whether the numbers of any of these rules depend on the key."""
    return any(rule.policy.overrides is not None for rule in rules)


def is_tiered(rules: Sequence[Rule]) -> bool:
    """Return whether there are other rules for some requests."""
    return any(rule.policy.has_tiers for rule in rules)


def is_tried(rules: Sequence[Rule]) -> bool:
    """Return whether any of these rules may not be enforced."""
    return any(rule.policy.enforced_parts < PARTS_PER_WHOLE for rule in rules)


def bounded(limit: Limit, max_wait_us: int, queue_max: int) -> Limit:
    """Return a limit with its queue: at most `max_wait_us`, and at most `queue_max` turns."""
    if queue_max and limit.algorithm in ("token_bucket", "paced_history"):
        # The last of `max` waiting requests waits for `max` intervals: bounding the
        # wait bounds the queue, in the store and so over all gateways.
        longest_us = queue_max * limit.interval_ns // NS_PER_US
        max_wait_us = min(max_wait_us, longest_us)
    return replace(limit, max_wait_us=max_wait_us)
