"""The Lua scripts beside the pure functions: both are asked the same, and compared.

The scripts run on a real server and are told the time, so that both see the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import redis
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS, leases
from gateway.limits.calendar import CALENDARS, Calendar
from gateway.limits.decision import DEBIT, Decision, Verdict, combine
from gateway.limits.rate import NS_PER_US, Limit
from gateway.stores.base import Ask
from gateway.stores.redis.script import (
    Codec,
    decode_verdicts,
    held_part,
    key_prefix,
    store_key,
)
from gateway.stores.redis.source import DECIDE, GIVE_BACK, RENEW, Script

START_US = 1_800_000_000_123_457
END_OF_2099_US = 4_102_444_799_999_999
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
LONG_MS = 10**12
DOMAIN = "twins"

WRAPPER = """
local long_ms = table.remove(ARGV)
local function script()
%s
end
local reply, times_to_live = script(), {}
for i, key in ipairs(KEYS) do
  times_to_live[i] = redis.call('PTTL', key)
end
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, long_ms)
end
return {reply, times_to_live}
"""


def bucket(count: int, period_us: int, burst: int, wait_us: int = 0) -> Limit:
    """A token bucket; its scope is given by `limits`."""
    return Limit(count, period_us, burst, max_wait_us=wait_us)


def log(count: int, period_us: int, wait_us: int = 0) -> Limit:
    """A sliding window log."""
    return Limit(count, period_us, count, "sliding_window_log", max_wait_us=wait_us)


def counter(count: int, period_us: int, wait_us: int = 0, *, all_count: bool = False) -> Limit:
    """A sliding window counter; `all_count` counts refused requests too."""
    algorithm = "sliding_window_counter"
    return Limit(count, period_us, count, algorithm, wait_us, count_refused=all_count)


def window(count: int, period_us: int, wait_us: int = 0, *, all_count: bool = False) -> Limit:
    """A fixed window."""
    return Limit(count, period_us, count, "fixed_window", wait_us, count_refused=all_count)


def days(count: int, calendar: Calendar, zone: str, wait_us: int = 0) -> Limit:
    """A fixed window of the calendar."""
    usual_us = CALENDARS[calendar]
    return Limit(count, usual_us, count, "fixed_window", wait_us, calendar=calendar, zone=zone)


def history(count: int, period_us: int, burst: int, wait_us: int = 0) -> Limit:
    """A paced history."""
    return Limit(count, period_us, burst, "paced_history", wait_us)


def slots(count: int, lease_us: int) -> Limit:
    """A limit on concurrency."""
    return Limit(count, lease_us, count, "concurrency")


SCOPES: dict[str, tuple[Limit, ...]] = {
    "odd": (bucket(7, SECOND_US, 3), bucket(7, SECOND_US, 5, SECOND_US), bucket(3, SECOND_US, 1)),
    "slow": (bucket(3, 300 * SECOND_US, 2), bucket(3, 300 * SECOND_US, 4, 200 * SECOND_US)),
    "fast": (bucket(10**7, SECOND_US, 20), bucket(10**9 - 1, SECOND_US, 4, 3)),
    "carry": (bucket(1_001_002, SECOND_US, 20), bucket(1_001_002, SECOND_US, 9, 12)),
    "huge": (bucket(1, 3650 * DAY_US, 6), bucket(11, 365 * DAY_US, 60, 30 * DAY_US)),
    "log": (log(4, SECOND_US), log(4, SECOND_US, 2 * SECOND_US), log(2, SECOND_US // 3, 999)),
    "all log": (
        replace(log(4, SECOND_US), count_refused=True),
        replace(log(3, SECOND_US // 2), count_refused=True),
        log(4, SECOND_US),
    ),
    "counter": (
        counter(4, SECOND_US, 2 * SECOND_US),
        counter(7, SECOND_US // 3, all_count=True),
        counter(3, SECOND_US),
    ),
    "big counter": (
        counter(10**9, 366 * DAY_US, 10 * DAY_US),
        counter(10**9 - 7, 366 * DAY_US - 1),
    ),
    "window": (
        window(4, SECOND_US, 3 * SECOND_US),
        window(7, SECOND_US // 3, all_count=True),
        window(3, SECOND_US),
    ),
    "day": (
        days(4, "day", "Europe/Berlin", 3 * DAY_US),
        days(3, "day", "Asia/Kathmandu"),
        days(5, "week", "America/St_Johns", DAY_US),
    ),
    "month": (days(4, "month", "UTC"), days(3, "month", "Pacific/Apia", 40 * DAY_US)),
    "history": (
        history(5, SECOND_US, 4, 2 * SECOND_US),
        history(7, SECOND_US, 3, SECOND_US // 3),
        history(5, SECOND_US, 6),
    ),
    "long history": (history(100, SECOND_US, 200, SECOND_US), history(90, SECOND_US, 150)),
    "slots": (slots(3, SECOND_US), slots(5, SECOND_US // 2), slots(2, 10 * SECOND_US)),
    "many slots": (slots(300, SECOND_US), slots(200, 2 * SECOND_US)),
    "long log": (log(200, 60 * SECOND_US), log(300, 60 * SECOND_US, 10 * SECOND_US)),
}
"""For each scope the limits that it has had in the course of time."""


@dataclass
class Originals:
    """The pure functions with their states, kept as the contract says."""

    states: dict[tuple[str, str], Any]

    def decide(self, ask: Ask, now_us: int) -> Verdict:
        """One ask: all its limits are spent, or none."""
        decisions: list[Decision] = []
        new: list[tuple[tuple[str, str], Any]] = []
        for limit, key, cost in zip(ask.limits, ask.keys, ask.each_cost, strict=True):
            place = (limit.scope, key)
            state, decision = ALGORITHMS[limit.algorithm].decide(
                self.states.get(place),
                now_us,
                cost,
                limit,
                min(limit.max_wait_us, ask.max_wait_us),
            )
            decisions.append(decision)
            new.append((place, state))
        verdict = combine(decisions)
        for (place, state), decision in zip(new, decisions, strict=True):
            if verdict.allowed and ask.cost:
                self.states[place] = state
            elif not decision.allowed and place in self.states:
                before = self.states[place]
                # Putting right brings a bucket closer, never further away.
                self.states[place] = min(before, state) if isinstance(state, int) else state
        return verdict

    def give_back(self, ask: Ask, verdict: Verdict, now_us: int) -> None:
        """Undo one verdict."""
        for limit, key, cost, decision in zip(
            ask.limits, ask.keys, ask.each_cost, verdict.decisions, strict=True
        ):
            place = (limit.scope, key)
            if place in self.states:
                self.states[place] = ALGORITHMS[limit.algorithm].give_back(
                    self.states[place], now_us, cost, limit, decision.receipt
                )

    def renew(self, ask: Ask, verdict: Verdict, now_us: int) -> int:
        """Renew what a verdict holds; how much of it was still held."""
        held = 0
        for limit, key, cost, decision in zip(
            ask.limits, ask.keys, ask.each_cost, verdict.decisions, strict=True
        ):
            place = (limit.scope, key)
            state, is_held = leases.renew(
                self.states.get(place), now_us, cost, limit, decision.receipt
            )
            if state is not None:
                self.states[place] = state
            held += is_held
        return held

    def agree(self, limit: Limit, key: str, stored: Any, now_us: int) -> None:
        """What is stored for a key is what is kept here; what was forgotten there was over."""
        place = (limit.scope, key)
        kept = self.states.get(place) or None
        if stored is None and kept is not None:
            assert ALGORITHMS[limit.algorithm].expires_us(kept, limit) <= now_us
            del self.states[place]
        else:
            assert stored == kept


class Twins:
    """The scripts on a server, told the time, and what they keep there."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.codec = Codec(DOMAIN)
        client.flushdb()

    def run(self, script: Script, words: list[bytes]) -> Any:
        """Run a script, look at the times to live that it left, and make them longer.

        The server's clock goes on while the script's stands still: the keys would disappear in
        the middle of a test. While a script runs time stands still for the server as well, so
        the rest is done by more Lua around it.
        """
        source = WRAPPER % script.source.decode()
        reply, times_to_live = self.client.eval(source, int(words[0]), *words[1:], LONG_MS)
        # That is a key which lives for ever; -2 is one that is not there.
        assert -1 not in times_to_live
        return reply

    def decide(self, asks: list[Ask], now_us: int) -> list[Verdict]:
        """One batch."""
        words = self.codec.encode_asks(asks, 0, now_us, server_us=now_us)
        reply = self.run(DECIDE, words)
        return decode_verdicts(asks, reply)

    def give_back(self, ask: Ask, verdict: Verdict, now_us: int) -> None:
        """Undo one verdict."""
        self.run(GIVE_BACK, self.codec.encode_give_back(ask, verdict, now_us))

    def renew(self, ask: Ask, verdict: Verdict, now_us: int) -> int:
        """Renew what a verdict holds; how much of it was still held."""
        return int(self.run(RENEW, self.codec.encode_renew(ask, verdict, now_us)))

    def state(self, limit: Limit, key: str) -> Any:
        """What is kept for a key, as the pure function would have it."""
        name = store_key(key_prefix(DOMAIN, limit), key)
        if limit.algorithm in {"sliding_window_log", "paced_history"}:
            return tuple(int(time) for time in self.client.lrange(name, 0, -1)) or None
        if limit.algorithm == "concurrency":
            return self._leases(name)
        text: Any = self.client.get(name)
        if text is None:
            return None
        numbers = tuple(map(int, text.split()))
        return numbers[0] if limit.algorithm == "token_bucket" else numbers

    def _leases(self, name: bytes) -> tuple[int, ...] | None:
        found: Any = self.client.zrange(name, 0, -1, withscores=True)
        scores = dict(found)
        if not scores:
            return None
        last, used = -int(scores.pop(b"last")), -int(scores.pop(b"used"))
        held = sorted(
            (*map(int, lease.split(b":")), int(expires)) for lease, expires in scores.items()
        )
        assert used == sum(cost for _, cost, _ in held)
        numbers = [number for lease, cost, expires in held for number in (lease, expires, cost)]
        return (last, *numbers)


@st.composite
def limits_of(draw: st.DrawFn, name: str) -> Limit:
    """A limit of a scope as it was at some time, when debits may have been heard of or not."""
    limit = draw(st.sampled_from(SCOPES[name]))
    return replace(limit, scope=name, debt=draw(st.sampled_from((0, 0, 1, limit.burst))))


@st.composite
def asks(draw: st.DrawFn, names: list[str]) -> Ask:
    """Limits of some of the scopes, each as it was at some time."""
    scopes = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    limits = tuple(draw(limits_of(name)) for name in scopes)
    keys = tuple(draw(st.sampled_from("aaab")) for _ in scopes)
    most = limits[0].burst
    cost = draw(st.one_of(st.integers(0, 3), st.integers(0, most + 1)))
    wait_us = draw(st.sampled_from((0, 5, SECOND_US, 10**15, 10**15, DEBIT)))
    if wait_us == DEBIT:
        cost = draw(st.integers(0, 3 * most))
    ask = Ask(limits, keys, cost, wait_us)
    if cost and draw(st.booleans()):
        return ask.with_costs([draw(st.integers(1, max(cost, limit.burst))) for limit in limits])
    return ask


@st.composite
def batches(draw: st.DrawFn, names: list[str]) -> list[Ask]:
    """Some asks, of which some in a row are those of one policy, for other clients perhaps."""
    batch: list[Ask] = []
    for ask in draw(st.lists(asks(names), min_size=1, max_size=3)):
        others = draw(st.text("ab", max_size=2))
        batch += [ask, *[ask._replace(keys=(key,) * len(ask.limits)) for key in others]]
    return batch


def pauses_us(limit: Limit) -> st.SearchStrategy[int]:
    """Steps that matter to a limit, forward and sometimes back."""
    slot_us = limit.period_us // limit.count
    most_us = max(limit.tolerance_ns // NS_PER_US, limit.max_wait_us)
    return st.one_of(
        st.sampled_from((0, 0, 1, slot_us, slot_us + 1, limit.period_us, limit.period_us + 1)),
        st.integers(0, 2 * slot_us + 2),
        st.integers(0, most_us),
        st.integers(-most_us - 2, -1),
        st.sampled_from((-DAY_US, DAY_US, -slot_us)),
    )


def check_sequence(client: redis.Redis, data: st.DataObject) -> None:
    """A sequence of calls, of the originals and of the twins on a server: field by field."""
    twins, originals = Twins(client), Originals({})
    names = data.draw(
        st.lists(st.sampled_from(sorted(SCOPES)), min_size=1, max_size=3, unique=True)
    )
    pauses = pauses_us(SCOPES[names[0]][0])
    start_us = data.draw(st.sampled_from((START_US, END_OF_2099_US)))
    now_us = start_us
    admitted: list[tuple[Ask, Verdict]] = []
    for _ in range(data.draw(st.integers(1, 20))):
        now_us = max(now_us + data.draw(pauses), start_us - 40 * DAY_US)
        now_us = min(now_us, END_OF_2099_US)
        if admitted and data.draw(st.integers(0, 3)) == 0:
            ask, verdict = admitted.pop(data.draw(st.integers(0, len(admitted) - 1)))
            held, its_verdict = held_part(ask, verdict)
            touched = [ask]
            if held.limits and data.draw(st.sampled_from((True, False)), label="renew"):
                admitted.append((ask, verdict))
                expected_held = originals.renew(held, its_verdict, now_us)
                assert twins.renew(held, its_verdict, now_us) == expected_held
            else:
                originals.give_back(ask, verdict, now_us)
                twins.give_back(ask, verdict, now_us)
        else:
            touched = data.draw(batches(names))
            expected = [originals.decide(ask, now_us) for ask in touched]
            answered = twins.decide(touched, now_us)
            assert [tuple(verdict) for verdict in answered] == [
                (*verdict[:3], list(verdict.decisions)) for verdict in expected
            ]
            admitted += [
                (ask, verdict)
                for ask, verdict in zip(touched, expected, strict=True)
                if verdict.allowed and ask.max_wait_us != DEBIT
            ]
        for ask in touched:
            for limit, key in zip(ask.limits, ask.keys, strict=True):
                originals.agree(limit, key, twins.state(limit, key), now_us)
