"""Encodes calls of the Lua scripts and decodes their answers; no connection.

`encode_asks` and `decode_verdicts` are the two ends of `lua/decide.lua`, `encode_give_back` and
`encode_renew` the near ends of `lua/give_back.lua` and `lua/renew.lua`. What each algorithm
wants to know is in `script_codec`; the scripts are put together of files in `source`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.base.errors import StoreReplyError, StoreTimeout
from gateway.limits import ALGORITHMS
from gateway.limits.decision import DEBIT, NEVER, Decision, Verdict, combine
from gateway.limits.rate import NS_PER_US, Limit
from gateway.stores.base import Ask
from gateway.stores.redis.script_codec import (
    calendar_words,
    decide_words,
    give_back_words,
    renew_words,
)

MAX_CACHED: Final = 4096
_bucket: Final = ALGORITHMS["token_bucket"]


def key_prefix(domain: str, limit: Limit) -> bytes:
    """Return the prefix of the keys of one limit; the identity that is counted follows.

    The algorithm is part of it: one cannot read the states of another.
    """
    return scope_prefix(domain, limit.scope, ALGORITHMS[limit.algorithm].tag)


def scope_prefix(domain: str, scope: str, tag: str) -> bytes:
    """Return the prefix of one scope's keys that hold states of the kind that `tag` names."""
    return without_brace(b"{", f"{domain}:{scope}:{tag}:".encode())


def gateways_key(domain: str) -> bytes:
    """Return the Redis key of the gateways that are alive."""
    return without_brace(b"{", f"{domain}:".encode()) + b"{gateways}"


def channel_name(domain: str, name: str, database: int) -> bytes:
    """Return the channel of messages of one kind; unlike keys, channels ignore databases."""
    place = f"{domain}@{database}" if database else domain
    return without_brace(b"{", f"{place}:".encode()) + b"{" + hash_tag(name) + b"}"


def hash_tag(key: str) -> bytes:
    """Return the part of an identity's keys that selects their slot of a Cluster.

    All of an identity's keys have the same one, so one script can decide on all its limits.
    Identities may hold header bytes that are not UTF-8; they are kept distinct, not refused.
    """
    if key.isascii() and "}" not in key and "%" not in key:
        return key.encode() or b"%"
    text = key.encode("utf-8", "surrogatepass")
    # Redis takes an empty tag for none.
    return without_brace(b"}", text) or b"%"


def store_key(prefix: bytes, key: str) -> bytes:
    """Return the Redis key of one identity; the only place where one is made."""
    return prefix + b"{" + hash_tag(key) + b"}"


def without_brace(brace: bytes, text: bytes) -> bytes:
    """Return the text with a brace escaped, so that different texts stay different."""
    if brace not in text and b"%" not in text:
        return text
    return text.replace(b"%", b"%25").replace(brace, b"%%%02X" % brace[0])


def held_part(ask: Ask, verdict: Verdict) -> tuple[Ask, Verdict]:
    """Return the limits of an ask that can be renewed, and their decisions."""
    places = [
        place
        for place, limit in enumerate(ask.limits)
        if ask.cost and ALGORITHMS[limit.algorithm].renew is not None
    ]
    decisions = [verdict.decisions[place] for place in places]
    return ask.part(places), verdict._replace(decisions=decisions)


class _AskTemplate(NamedTuple):
    """The common part of every ask with the same limits, cost and patience.

    Attributes:
        limits: the limits, which the plan keeps from being freed.
        prefixes: the prefix of each limit's keys.
        words: the script's arguments.
        calendars: the positions in `words` for calendar windows, and their limits.
    """

    limits: tuple[Limit, ...]
    prefixes: tuple[bytes, ...]
    words: tuple[bytes, ...]
    calendars: tuple[tuple[int, Limit], ...]


class Codec:
    """Encodes asks for the scripts; caches what all asks of a policy have in common.

    Args:
        domain: the namespace of all keys.
    """

    __slots__ = ("_domain", "_plans")

    def __init__(self, domain: str) -> None:
        self._domain = domain
        self._plans: dict[tuple[int, int, int, tuple[int, ...]], _AskTemplate] = {}

    def encode_asks(
        self, asks: Sequence[Ask], not_after_us: int, now_us: int = 0, server_us: int = 0
    ) -> list[bytes]:
        """Return number of keys, keys and arguments for `DECIDE`.

        Args:
            asks: the batch.
            not_after_us: server time after which nothing is to be spent; 0 for no bound.
            now_us: 0 for the server's time; anything else is for tests only.
            server_us: what the server's clock probably shows, for calendar windows.
        """
        keys: list[bytes] = [b""]
        words: list[bytes] = [b"%d" % now_us, b"0", b"%d" % not_after_us]
        plans = self._plans
        last: _AskTemplate | None = None
        alike = 0
        for ask in asks:
            limits = ask.limits
            # By identity: hashing a tuple of limits costs more than all the rest. The plan
            # holds the tuple, so its identity cannot become another's.
            plan = plans.get((id(limits), ask.cost, ask.max_wait_us, ask.costs))
            if plan is None:
                plan = self._plan(ask)
            if plan is last:
                alike += 1
            else:
                if last is not None:
                    _add_plan(words, alike, last, server_us)
                last, alike = plan, 1
            prefixes = plan.prefixes
            if len(prefixes) == 1:
                keys.append(store_key(prefixes[0], ask.keys[0]))
            else:
                keys += map(store_key, prefixes, ask.keys)
        if last is not None:
            _add_plan(words, alike, last, server_us)
        keys[0] = b"%d" % (len(keys) - 1)
        return keys + words

    def encode_give_back(self, ask: Ask, verdict: Verdict, now_us: int = 0) -> list[bytes]:
        """Return number of keys, keys and arguments for `GIVE_BACK`."""
        return self._encode_undo(ask, verdict, now_us, give_back_words)

    def encode_renew(self, ask: Ask, verdict: Verdict, now_us: int = 0) -> list[bytes]:
        """Return number of keys, keys and arguments for `RENEW`; see `held_part`."""
        return self._encode_undo(ask, verdict, now_us, renew_words)

    def _encode_undo(
        self,
        ask: Ask,
        verdict: Verdict,
        now_us: int,
        words_of: Callable[[Limit, int, int], tuple[bytes, ...]],
    ) -> list[bytes]:
        keys: list[bytes] = []
        words: list[bytes] = [b"%d" % now_us]
        for limit, key, cost, decision in zip(
            ask.limits, ask.keys, ask.each_cost, verdict.decisions, strict=True
        ):
            keys.append(store_key(key_prefix(self._domain, limit), key))
            words.append(b"%d" % cost)
            words += words_of(limit, cost, decision.receipt)
        return [b"%d" % len(keys), *keys, *words]

    def _words(self, limit: Limit, cost: int, max_wait_us: int) -> tuple[bytes, ...]:
        return decide_words(limit, cost, max_wait_us)

    def _plan(self, ask: Ask) -> _AskTemplate:
        if len(self._plans) >= MAX_CACHED:
            self._plans.clear()
        words = [b"%d" % len(ask.limits), b"-1" if ask.costs else b"%d" % ask.cost]
        words += [b"%d" % cost for cost in ask.costs]
        calendars: list[tuple[int, Limit]] = []
        for limit, cost in zip(ask.limits, ask.each_cost, strict=True):
            words += self._words(limit, cost, ask.max_wait_us)
            if limit.calendar:
                calendars.append((len(words), limit))
        prefixes = tuple(key_prefix(self._domain, limit) for limit in ask.limits)
        plan = _AskTemplate(ask.limits, prefixes, tuple(words), tuple(calendars))
        self._plans[id(ask.limits), ask.cost, ask.max_wait_us, ask.costs] = plan
        return plan


def _add_plan(words: list[bytes], alike: int, plan: _AskTemplate, server_us: int) -> None:
    """Add the arguments for this many consecutive asks."""
    words.append(b"%d" % alike)
    if plan.calendars:
        _add_calendars(words, plan, server_us)
    else:
        words += plan.words


def _add_calendars(words: list[bytes], plan: _AskTemplate, server_us: int) -> None:
    """Add a plan's words with its calendar windows, and narrow the time they are valid for."""
    at = 0
    for position, limit in plan.calendars:
        windows = calendar_words(limit, server_us)
        words += plan.words[at:position]
        words += windows.words
        at = position
        words[1] = b"%d" % max(int(words[1]), windows.early_us)
        late_us = int(words[2])
        words[2] = b"%d" % (min(late_us, windows.late_us) if late_us else windows.late_us)
    words += plan.words[at:]


def server_now_us(reply: object) -> int:
    """Return the server's time in an answer of `DECIDE`.

    Raises:
        StoreReplyError: it is no answer of that script.
    """
    if type(reply) is not list or not reply or type(reply[0]) is not int:
        raise StoreReplyError("the script's answer is no list of numbers")
    return reply[0]


def decode_verdicts(asks: Sequence[Ask], reply: list[int]) -> list[Verdict]:
    """Return the verdicts in an answer of `DECIDE`.

    Raises:
        StoreTimeout: the batch came too late; nothing was spent.
        StoreReplyError: the script does not give this answer to these asks.
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
    for ask in asks:
        limits, _, same_cost, ask_wait_us = ask
        costs = ask.costs
        decisions: list[Decision] = []
        for place, limit in enumerate(limits):
            cost = costs[place] if costs else same_cost
            wait_us = min(limit.max_wait_us, ask_wait_us)
            if limit.algorithm == "token_bucket":
                # The script answers the state it saw; the Python original computes the rest.
                state = reply[at + 1] * NS_PER_US + reply[at + 2]
                spent = _bucket.spend(state, now_us, cost, limit, wait_us)
                decision = _bucket.describe(spent[0], now_us, cost, limit, spent[1], spent[2])
                if decision.allowed != (reply[at] == 1):
                    raise ValueError("the script and its original disagree")
                at += 3
            elif limit.algorithm == "sliding_window_log":
                decision = _log_decision(limit, now_us, cost, wait_us, reply[at : at + 4])
                at += 4
            else:
                decision = _decision(limit, reply[at : at + 6])
                at += 6
            decisions.append(decision)
        if len(decisions) == 1:
            first = decisions[0]
            verdicts.append(Verdict(first.allowed, first.wait_us, first.retry_after_us, decisions))
        else:
            verdicts.append(combine(decisions))
    if at != len(reply):
        raise ValueError("there are more answers than questions")
    return verdicts


def _log_decision(
    limit: Limit, now_us: int, cost: int, max_wait_us: int, seen: list[int]
) -> Decision:
    """Return the decision of `sliding_log`, from the sums that the script answers."""
    allowed, used, last, turn = seen
    free = max(limit.count - used, 0)
    reset_us = last + limit.period_us + 1 - now_us if used else 0
    if max_wait_us == DEBIT:
        counted = max(min(cost, limit.count + limit.debt - used), 0)
        free = max(limit.count - used - counted, 0)
        if counted:
            reset_us = max(last, now_us) + limit.period_us + 1 - now_us
        receipt = turn if cost else 0
        return Decision(True, turn - now_us, 0, limit.count, free, reset_us, receipt)
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


def _decision(limit: Limit, fields: list[int]) -> Decision:
    """Return the decision whose fields the script answers."""
    allowed, wait_us, retry_after_us, remaining, reset_us, receipt = fields
    most = limit.burst if limit.algorithm == "paced_history" else limit.count
    return Decision(allowed == 1, wait_us, retry_after_us, most, remaining, reset_us, receipt)
