"""What asks come to in a Throttr server: its own records, at a time of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.base.errors import StoreError, StoreUnavailable
from gateway.limits.decision import NEVER, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.systems.throttr.codec_v5 import (
    MAX_KEY,
    SIZES,
    Answer,
    AnswerStream,
    Parser5,
    ThrottrRequest,
    ttl_of,
)
from gateway.systems.throttr.memory_v5 import Memory5
from gateway.systems.throttr.records import Records
from gateway.systems.throttr.spending import BucketNames, Dialogue, ServerDialogue

T = TypeVar("T")

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
MARGIN_US: Final = 20_000
MANY: Final = 1_000
FEW: Final = Limit(3, MINUTE_US, 3, "fixed_window", scope="few")
MORE: Final = Limit(7, 90 * SECOND_US, 7, "fixed_window", scope="more")
LIMITS: Final = (FEW, MORE)


class Server:
    """Records of a Throttr server, and one gateway that asks.

    Args:
        size: bits of a number.
        max_records: how many counters there is room for.
        latency_us: how long each way takes.
    """

    def __init__(self, size: int = 16, max_records: int = MANY, latency_us: int = 0) -> None:
        self.clock = ManualClock(SECOND_US)
        self.size = size
        self.writes = 0
        self.talk = ServerDialogue("test", size, MARGIN_US, self.clock)
        self._latency_us = latency_us
        self._memory = Memory5(Records(max_records, 1 << 20), size)

    def answer(self, requests: Sequence[ThrottrRequest]) -> list[Answer]:
        """What the server says to one write."""
        parser, reader = Parser5(self.size, 4096), AnswerStream(self.size)
        parser.feed(b"".join(each.data for each in requests))
        said = self._memory.answer(parser.take(MANY), self.clock() * 1_000, MANY)
        reader.feed(b"".join(said))
        self.writes += 1
        answers: list[Answer] = []
        assert reader.read([each.is_query for each in requests], answers)
        assert not reader
        return answers

    def run(self, dialogue: Dialogue[T]) -> T:
        """Have something said to its end."""
        try:
            requests = next(dialogue)
            while True:
                sent_us = self.clock()
                self.clock.advance(seconds=self._latency_us / SECOND_US)
                answers = self.answer(requests)
                assert len(answers) == len(requests)
                self.clock.advance(seconds=self._latency_us / SECOND_US)
                requests = dialogue.send((answers, sent_us))
        except StopIteration as end:
            result: T = end.value
            return result

    def decide(self, *asks: Ask) -> list[Verdict]:
        """Decide on a batch."""
        return self.run(self.talk.decide(asks))

    def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Return what an ask was given."""
        self.run(self.talk.give_back(ask, verdict))

    def left(self, limit: Limit, key: str = "k") -> int:
        """How many more would pass."""
        (verdict,) = self.decide(ask(limit, cost=0, key=key))
        return verdict.decisions[0].remaining


def ask(*limits: Limit, cost: int = 1, key: str = "k") -> Ask:
    """A question about some limits, all of one key."""
    return Ask(limits, (key,) * len(limits), cost, 0)


class Windows:
    """What a limit is in such a server, written down once more: the model."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[int, int]] = {}

    def left(self, limit: Limit, now_us: int) -> int:
        """How many may pass now."""
        begin_us, used = self._windows.get(limit.scope, (-limit.period_us, 0))
        return limit.count - used if now_us < begin_us + limit.period_us else limit.count

    def take(self, limits: Sequence[Limit], cost: int, now_us: int) -> bool:
        """Take of all of them, or of none."""
        if any(self.left(limit, now_us) < cost for limit in limits):
            return False
        for limit in limits if cost else ():
            begin_us, used = self._windows.get(limit.scope, (-limit.period_us, 0))
            if now_us >= begin_us + limit.period_us:
                begin_us, used = now_us, 0
            self._windows[limit.scope] = begin_us, used + cost
        return True

    def give_back(self, limits: Sequence[Limit], cost: int, taken_us: int, now_us: int) -> None:
        """Return it to windows that are still those of then, and will be for a while."""
        for limit in limits:
            begin_us, used = self._windows[limit.scope]
            if begin_us <= taken_us and now_us + MARGIN_US < begin_us + limit.period_us:
                self._windows[limit.scope] = begin_us, used - cost


steps = st.lists(
    st.tuples(
        st.sampled_from([(FEW,), (MORE,), (FEW, MORE), (MORE, FEW)]),
        st.integers(0, 4),
        st.sampled_from([0, 1, SECOND_US, 29 * SECOND_US, MINUTE_US - 10_000, MINUTE_US]),
        st.booleans(),
    ),
    max_size=12,
)


@given(steps, st.sampled_from([32, 64]))
def test_decisions_are_those_of_windows_that_begin_with_a_request(
    program: list[tuple[tuple[Limit, ...], int, int, bool]], size: int
) -> None:
    """Whatever is asked and returned, and when: as the model has it, to the last request."""
    server, model = Server(size), Windows()
    for limits, cost, pause_us, is_returned in program:
        server.clock.advance(seconds=pause_us / SECOND_US)
        now_us = server.clock()
        question = ask(*limits, cost=cost)
        (verdict,) = server.decide(question)

        assert verdict.allowed == model.take(limits, cost, now_us)
        for limit, decision in zip(limits, verdict.decisions, strict=True):
            assert decision.remaining == model.left(limit, now_us)
            assert decision.limit == limit.count
            assert (
                decision.allowed
                or decision.retry_after_us == NEVER
                or (0 < decision.retry_after_us <= limit.period_us)
            )
        if is_returned:
            server.give_back(question, verdict)
            if verdict.allowed and cost:
                model.give_back(limits, cost, now_us, now_us)
        for limit in LIMITS:
            assert server.left(limit) == model.left(limit, now_us)


@given(steps, st.sampled_from(SIZES), st.integers(0, 30_000))
def test_no_window_lets_more_through(
    program: list[tuple[tuple[Limit, ...], int, int, bool]], size: int, latency_us: int
) -> None:
    """With time on the way and coarse units, less may pass, and never more than a window has."""
    server = Server(size, latency_us=latency_us)
    passed: dict[Limit, list[tuple[int, int]]] = {limit: [] for limit in LIMITS}
    for limits, cost, pause_us, is_returned in program:
        server.clock.advance(seconds=pause_us / SECOND_US)
        question, before_us = ask(*limits, cost=cost), server.clock()
        (verdict,) = server.decide(question)
        if verdict.allowed and not is_returned:
            for limit in limits:
                passed[limit].append((before_us, cost))
        elif verdict.allowed:
            server.give_back(question, verdict)
    for limit, times in passed.items():
        for first_us, _ in times:
            # Two windows may touch what lies within one period.
            window = [
                cost for at_us, cost in times if first_us <= at_us < first_us + limit.period_us
            ]
            assert sum(window) <= 2 * limit.count


def test_a_batch_is_one_write_and_several_limits_are_two() -> None:
    """For any number of asks; a limit refused by a query is not written again."""
    server = Server()
    server.decide(*[ask(FEW) for _ in range(20)])
    assert server.writes == 1
    assert [each.allowed for each in server.decide(ask(MORE), ask(FEW, MORE))] == [True, False]
    assert server.writes == 3
    server.decide(ask(FEW, MORE), ask(FEW, MORE))
    assert server.writes == 4
    assert server.left(MORE) == 6


def test_what_was_taken_in_vain_is_given_back() -> None:
    """Two asks of one batch both see room; the one that finds none returns the rest."""
    server = Server()
    server.decide(ask(FEW, cost=2))
    verdicts = server.decide(ask(MORE, FEW), ask(MORE, FEW), ask(MORE, FEW))

    assert [each.allowed for each in verdicts] == [True, False, False]
    assert (server.left(FEW), server.left(MORE)) == (0, 6)


def test_nothing_is_given_back_to_another_window() -> None:
    """Neither to one that has begun since, nor to one that is about to end."""
    server = Server()
    question = ask(FEW, cost=2)
    (first,) = server.decide(question)
    server.clock.advance(seconds=60)
    server.decide(ask(FEW))
    server.give_back(question, first)
    assert server.left(FEW) == 2

    (second,) = server.decide(question)
    server.clock.advance(seconds=59.99)
    server.give_back(question, second)
    assert server.left(FEW) == 0


def test_a_server_that_began_anew_gets_nothing_back() -> None:
    """A window of after a restart ends later than the one that was taken from."""
    server, restarted = Server(), Server()
    question = ask(FEW, cost=2)
    (verdict,) = server.decide(question)
    restarted.clock.advance(seconds=5)
    restarted.decide(ask(FEW, cost=3))
    restarted.give_back(question, verdict)

    assert restarted.left(FEW) == 0


def test_retry_after_is_never_too_early() -> None:
    """In the coarsest units too: the next window can begin then, or earlier."""
    for size in SIZES:
        for limit in LIMITS:
            server = Server(size)
            server.decide(ask(limit, cost=limit.count))
            server.clock.advance(seconds=0.7)
            (refused,) = server.decide(ask(limit))
            server.clock.advance(seconds=refused.retry_after_us / SECOND_US)
            assert server.decide(ask(limit))[0].allowed
            server.clock.advance(seconds=0)
            unit = ttl_of(limit.period_us, size)
            assert unit is not None
            assert refused.retry_after_us <= limit.period_us - 700_000 + unit.step_us


def test_what_can_never_pass_takes_nothing() -> None:
    """The answer says so, and the limits that it would pass are unchanged."""
    server = Server()
    (verdict,) = server.decide(ask(FEW, MORE, cost=5))

    assert (verdict.allowed, verdict.retry_after_us) == (False, NEVER)
    assert [each.allowed for each in verdict.decisions] == [False, True]
    assert (server.left(FEW), server.left(MORE)) == (3, 7)


def test_what_was_let_through_without_the_store_is_counted_as_far_as_there_is_room() -> None:
    """A report of more than is left leaves nothing; one limit that counts it spends no other."""
    server = Server()
    counting = replace(FEW, count_refused=True)
    server.decide(ask(counting, cost=2))
    (verdict,) = server.decide(ask(counting, cost=2))
    assert not verdict.allowed
    assert server.left(FEW) == 0


def test_a_window_that_ends_between_two_words_is_tried_again() -> None:
    """An ambiguous answer is asked again; not forever."""
    server = Server()
    server.decide(ask(FEW))
    dialogue = server.talk.decide([ask(FEW)])
    requests = next(dialogue)
    server.answer(requests[:1])
    server.clock.advance(seconds=60)
    # INSERT found the old window, UPDATE and QUERY find none.
    again = dialogue.send(([0, *server.answer(requests[1:])], server.clock()))
    with pytest.raises(StopIteration) as end:
        dialogue.send((server.answer(again), server.clock()))
    assert end.value.value[0].allowed


def test_a_full_server_is_no_refusal() -> None:
    """A limit that cannot be counted refuses nothing; what the batch took is returned."""
    server = Server(max_records=1)
    server.decide(ask(MORE))
    with pytest.raises(StoreUnavailable) as caught:
        server.decide(ask(MORE), ask(FEW))
    assert caught.value.reason == "full"
    assert server.left(MORE) == 6


@pytest.mark.parametrize(
    "limit",
    [
        replace(FEW, algorithm="token_bucket"),
        replace(FEW, calendar="day", period_us=86_400 * SECOND_US),
        replace(FEW, count=65_536),
        replace(FEW, period_us=65_537 * SECOND_US),
    ],
)
def test_what_cannot_be_kept_is_not_asked(limit: Limit) -> None:
    """It is a store error, which checking a configuration prevents; a query is harmless."""
    server = Server()
    with pytest.raises(StoreError, match="cannot keep"):
        server.decide(ask(limit))
    assert server.decide(ask(limit, cost=0))[0].allowed


@given(st.lists(st.tuples(st.text(), st.text()), min_size=2, max_size=2, unique=True))
def test_names_are_distinct_and_fit(pairs: list[tuple[str, str]]) -> None:
    """Scopes and identities of any length and any text have names of their own."""
    names = BucketNames("domain")
    found = []
    for scope, key in pairs:
        for times in (1, 300):
            limit = replace(FEW, scope=scope.replace("\0", "0"))
            found.append((limit.scope, key * times, names.name(limit, key * times)))

    assert all(len(name) <= MAX_KEY for _, _, name in found)
    assert len({name for _, _, name in found}) == len({pair[:2] for pair in found})
