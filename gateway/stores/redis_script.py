"""What is said to the Lua scripts and what is understood of their answers; no connection.

`encode_asks` and `decode_verdicts` are the two ends of `lua/decide.lua`, `encode_give_back` is
the near end of `lua/give_back.lua`. The pure functions of `gateway.limits` stay the only ones
that know what a `Decision` says: the script answers what state it saw, and they tell the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Final, NamedTuple

from gateway.errors import StoreReplyError, StoreTimeout
from gateway.limits import ALGORITHMS, token_bucket
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import NS_PER_US, Limit
from gateway.stores.base import Ask

LONGEST_US: Final = 2 * 10**15
"""Longest time a script is told of, 63 years: any sum of it with the present and a queue stays
below 2^53 until the year 2100. A limit that takes longer to refill counts as one that takes
this long."""

LONGEST_QUEUE_US: Final = 10**13
"""Likewise for waiting; four months."""

MAX_CACHED: Final = 4096

_BUCKET = b"1"
_LOG = b"2"


class Script(NamedTuple):
    """A script and the digest under which the server remembers it."""

    source: bytes
    digest: bytes


def _load(name: str) -> Script:
    source = resources.files("gateway.stores").joinpath("lua", name).read_bytes()
    # The server's own name for a script, not a protection: SHA-1 is what it uses.
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    return Script(source, digest.encode())


DECIDE: Final = _load("decide.lua")
GIVE_BACK: Final = _load("give_back.lua")
HEARTBEAT: Final = _load("heartbeat.lua")


def key_prefix(domain: str, limit: Limit) -> bytes:
    """What the keys of one limit begin with; the identity that is counted follows.

    The algorithm is part of it: one cannot read the states of another.
    """
    return _without(b"{", f"{domain}:{limit.scope}:{ALGORITHMS[limit.algorithm].tag}:".encode())


def gateways_key(domain: str) -> bytes:
    """The Redis key of the gateways that are alive."""
    return _without(b"{", f"{domain}:".encode()) + b"{gateways}"


def hash_tag(key: str) -> bytes:
    """The part of an identity's keys that says which slot of a Cluster they are in.

    All of an identity's keys have the same, so one script can decide on all its limits.
    Identities may hold bytes of a header that are not UTF-8; they are kept apart, not refused.
    """
    text = key.encode("utf-8", "surrogatepass")
    # Redis takes an empty tag for none.
    return _without(b"}", text) or b"%"


def store_key(prefix: bytes, key: str) -> bytes:
    """The Redis key of one identity; the only place where one is made."""
    return b"%b{%b}" % (prefix, hash_tag(key))


def _without(brace: bytes, text: bytes) -> bytes:
    """The text with a brace written otherwise, so that different texts stay different."""
    if brace not in text and b"%" not in text:
        return text
    return text.replace(b"%", b"%25").replace(brace, b"%%%02X" % brace[0])


def _pair(time_ns: int) -> tuple[bytes, bytes]:
    """A time as microseconds and the nanoseconds on top, which Lua's numbers hold exactly."""
    us, ns = divmod(min(time_ns, LONGEST_US * NS_PER_US), NS_PER_US)
    return b"%d" % us, b"%d" % ns


def _limit_words(limit: Limit, cost: int, max_wait_us: int) -> tuple[bytes, ...]:
    queue_us = min(limit.max_wait_us, LONGEST_QUEUE_US)
    waits = (b"%d" % min(max_wait_us, queue_us), b"%d" % queue_us)
    if limit.algorithm == "sliding_window_log":
        window_us = min(limit.period_us, LONGEST_US)
        return (_LOG, *waits, b"%d" % window_us, b"%d" % limit.count)
    taken = (b"-1", b"0") if cost > limit.burst else _pair(cost * limit.interval_ns)
    return (_BUCKET, *waits, *taken, *_pair(limit.tolerance_ns))


class _Plan(NamedTuple):
    """What every ask of the same limits, cost and patience has in common."""

    limits: tuple[Limit, ...]
    prefixes: tuple[bytes, ...]
    words: tuple[bytes, ...]


class Codec:
    """Encodes asks for the scripts; remembers what is the same for all asks of a policy.

    Args:
        domain: the namespace of all keys.
    """

    __slots__ = ("_domain", "_plans")

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._plans: dict[tuple[int, int, int], _Plan] = {}

    def encode_asks(self, asks: Sequence[Ask], not_after_us: int, now_us: int = 0) -> list[bytes]:
        """Number of keys, keys and arguments for `DECIDE`.

        Args:
            asks: the batch.
            not_after_us: server time after which nothing is to be spent; 0 for no bound.
            now_us: 0 for the server's time, which is all that anything but a test may want.
        """
        keys: list[bytes] = [b""]
        words: list[bytes] = [b"%d" % now_us, b"%d" % not_after_us]
        plans = self._plans
        for ask in asks:
            limits = ask.limits
            # By identity: hashing a tuple of limits costs more than all the rest. The plan
            # holds the tuple, so its identity cannot become another's.
            plan = plans.get((id(limits), ask.cost, ask.max_wait_us))
            if plan is None:
                plan = self._plan(ask)
            words += plan.words
            prefixes = plan.prefixes
            if len(prefixes) == 1:
                keys.append(store_key(prefixes[0], ask.keys[0]))
            else:
                keys += map(store_key, prefixes, ask.keys)
        keys[0] = b"%d" % (len(keys) - 1)
        return keys + words

    def encode_give_back(self, ask: Ask, verdict: Verdict, now_us: int = 0) -> list[bytes]:
        """Number of keys, keys and arguments for `GIVE_BACK`."""
        keys: list[bytes] = []
        words: list[bytes] = [b"%d" % now_us, b"%d" % ask.cost]
        for limit, key, decision in zip(ask.limits, ask.keys, verdict.decisions, strict=True):
            keys.append(store_key(key_prefix(self._domain, limit), key))
            if limit.algorithm == "sliding_window_log":
                words += (_LOG, b"%d" % decision.receipt)
            else:
                us, ns = divmod(decision.receipt, NS_PER_US)
                taken = _pair(ask.cost * limit.interval_ns)
                words += (_BUCKET, b"%d" % us, b"%d" % ns, *taken, *_pair(limit.tolerance_ns))
        return [b"%d" % len(keys), *keys, *words]

    def _plan(self, ask: Ask) -> _Plan:
        if len(self._plans) >= MAX_CACHED:
            self._plans.clear()
        words = [b"%d" % len(ask.limits), b"%d" % ask.cost]
        for limit in ask.limits:
            words += _limit_words(limit, ask.cost, ask.max_wait_us)
        prefixes = tuple(key_prefix(self._domain, limit) for limit in ask.limits)
        plan = _Plan(ask.limits, prefixes, tuple(words))
        self._plans[id(ask.limits), ask.cost, ask.max_wait_us] = plan
        return plan


def server_now_us(reply: object) -> int:
    """The server's time of an answer of `DECIDE`.

    Raises:
        StoreReplyError: it is no answer of that script.
    """
    if type(reply) is not list or not reply or type(reply[0]) is not int:
        raise StoreReplyError("the script's answer is no list of numbers")
    return reply[0]


def decode_verdicts(asks: Sequence[Ask], reply: list[int]) -> list[Verdict]:
    """The verdicts that an answer of `DECIDE` stands for.

    Raises:
        StoreTimeout: the batch came too late; nothing was spent.
        StoreReplyError: the answer is not one that the script gives to these asks.
    """
    if len(reply) == 1:
        raise StoreTimeout("the store got to the batch after its deadline", "late")
    try:
        return _decode(asks, reply)
    except (IndexError, TypeError, ValueError) as error:
        raise StoreReplyError("the script's answer does not fit the question") from error


def _decode(asks: Sequence[Ask], reply: list[int]) -> list[Verdict]:
    now_us = reply[0]
    at = 1
    verdicts: list[Verdict] = []
    for limits, _, cost, ask_wait_us in asks:
        decisions: list[Decision] = []
        for limit in limits:
            wait_us = min(limit.max_wait_us, ask_wait_us)
            if limit.algorithm == "token_bucket":
                state = reply[at + 1] * NS_PER_US + reply[at + 2]
                decision = token_bucket.decide(state, now_us, cost, limit, wait_us)[1]
                if decision.allowed != (reply[at] == 1):
                    raise ValueError("the script and its original disagree")
                at += 3
            else:
                decision = _log_decision(limit, now_us, cost, wait_us, reply[at : at + 4])
                at += 4
            decisions.append(decision)
        if len(decisions) == 1:
            first = decisions[0]
            verdicts.append(Verdict(first.allowed, first.wait_us, first.retry_after_us, decisions))
        else:
            verdicts.append(combine(decisions))
    if at != len(reply):
        raise ValueError("more was answered than was asked")
    return verdicts


def _log_decision(
    limit: Limit, now_us: int, cost: int, max_wait_us: int, seen: list[int]
) -> Decision:
    """The decision of `sliding_log.decide`, told from the sums that the script answers."""
    allowed, used, last, turn = seen
    free = max(limit.count - used, 0)
    reset_us = last + limit.period_us + 1 - now_us if used else 0
    if cost > limit.count:
        return Decision(False, 0, NEVER, limit.count, free, reset_us, 0)
    if cost == 0:
        return Decision(True, 0, 0, limit.count, free, reset_us, 0)
    wait_us = turn - now_us
    if not allowed:
        return Decision(False, 0, wait_us - max_wait_us, limit.count, free, reset_us, 0)
    reset_us = wait_us + limit.period_us + 1
    free = max(limit.count - used - cost, 0)
    return Decision(True, wait_us, 0, limit.count, free, reset_us, turn)
