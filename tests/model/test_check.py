"""The judge of the model check, on invented histories: it finds what is wrong, and only that."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import ALGORITHMS
from gateway.limits.rate import Limit
from tests.model.check import Course, Loss, findings, violations
from tests.model.history import (
    CANCELLED,
    PASSED,
    REFUSED,
    RETURNED,
    Asked,
    Kept,
    Notes,
    Span,
    line,
    parse,
)
from tests.model.laws import Passed, excess, passed_at
from tests.model.limits import HELD, LIMITS, US
from tests.model.schedule import GATEWAY_FAULTS, STORES, schedule

BUCKET = Limit(10, US, 5, scope="bucket/key")
LOG = Limit(5, US, 5, "sliding_window_log", scope="log/key")
KEY = (BUCKET.scope, "ann")
LIMIT_OF = {limit.scope: limit for limit in (BUCKET, LOG, HELD)}
COURSE = Course(LIMIT_OF, 3, 100_000, "closed", Span(0, 0))


def asked(at: int, **changes: object) -> Asked:
    """One that passed at a moment."""
    one = Asked(at, at, at, (KEY,), 1, PASSED, False, (0,), 0, at, 0, Span(at, at))
    return one._replace(**changes)  # type: ignore[arg-type]  # of any of its types


def many(at: int, number: int, **changes: object) -> list[Asked]:
    """Several at the same moment."""
    return [asked(at, **changes) for _ in range(number)]


def judge(course: Course, *all_asked: Asked, kept: tuple[Kept, ...] = ()) -> list[str]:
    """What is found wrong with what one process noted."""
    return violations(course, [Notes("gateway", list(all_asked), list(kept))])


@given(
    st.sampled_from(list(LIMITS.values())),
    st.lists(st.tuples(st.integers(0, 400_000), st.integers(1, 3)), max_size=60),
    st.integers(0, 20_000),
)
def test_what_an_algorithm_lets_through_is_lawful(
    limit: Limit, asks: list[tuple[int, int]], blur_us: int
) -> None:
    """Whoever follows the original finds no excess, however well the moments are known."""
    algorithm = ALGORITHMS[limit.algorithm]
    dice = random.Random(len(asks))
    state, now, passed = None, 10**9, []
    for pause_us, cost in asks:
        now += pause_us // 4
        state, decision = algorithm.decide(state, now, cost, limit, limit.max_wait_us)
        if decision.allowed:
            one = passed_at(now, cost, wait_us=decision.wait_us, until=now + limit.period_us)
            early, late = dice.randint(0, blur_us), dice.randint(0, blur_us)
            passed.append(blurred(one, early, late))
    assert excess(limit, passed) <= 0


def blurred(one: Passed, early: int, late: int) -> Passed:
    """The same, less well known."""
    decided, turn, store = (
        Span(span.first - early, span.last + late) for span in (one.decided, one.turn, one.store)
    )
    return one._replace(decided=decided, turn=turn, store=store)


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_one_more_than_the_limit_is_found(limit: Limit) -> None:
    """Of every algorithm: what passes at once, and one that must not have."""
    begin = limit.period_us * 1000
    at_once = [passed_at(begin + n, until=begin + limit.period_us) for n in range(limit.burst)]
    assert excess(limit, at_once) == 0
    one_more = passed_at(begin + limit.burst, until=begin + limit.period_us)
    assert excess(limit, [*at_once, one_more]) == 1


def test_what_came_back_may_pass_and_not_a_moment_sooner() -> None:
    """At the edge of the window, or of the interval, a microsecond decides."""
    first = [passed_at(n) for n in (0, 0, 0, 0, 0)]
    assert excess(BUCKET, [*first, passed_at(100_000)]) == 0
    assert excess(BUCKET, [*first, passed_at(99_999)]) == 1
    assert excess(LOG, [*first, passed_at(US + 1)]) == 0
    assert excess(LOG, [*first, passed_at(US)]) == 1
    counter = replace(LOG, algorithm="sliding_window_counter")
    assert excess(counter, [*first, passed_at(US + 200_000)]) == 0
    assert excess(counter, [*first, passed_at(US + 199_999)]) == 1
    fixed = replace(LOG, algorithm="fixed_window")
    assert excess(fixed, [*first, *[passed_at(US)] * 5]) == 0
    assert excess(fixed, [*first, passed_at(US - 1)]) == 1


def test_a_paced_request_waits_behind_the_newest() -> None:
    """With the burst used up each is an interval behind the one before."""
    paced = replace(BUCKET, algorithm="paced_history", max_wait_us=US)
    first = [passed_at(n) for n in range(5)]
    right = [passed_at(10, wait_us=99_994), passed_at(20, wait_us=199_984)]
    assert excess(paced, [*first, passed_at(10, wait_us=100_000)]) == 0
    assert excess(paced, [*first, *right]) == 1
    right = [passed_at(10, wait_us=100_000), passed_at(20, wait_us=199_990)]
    assert excess(paced, [*first, *right]) == 0
    wrong = [passed_at(10, wait_us=100_000), passed_at(20, wait_us=150_000)]
    assert excess(paced, [*first, *wrong]) == 1


def test_moments_that_are_not_known_are_not_held_against_anybody() -> None:
    """What may have been in the window or not is no excess; what was for certain is."""
    assert judge(COURSE, *many(0, 5), asked(0, received=100_000)) == []
    assert judge(COURSE, *many(0, 5), asked(0, received=99_999)) != []


def test_only_what_passed_counts() -> None:
    """Refused, given back and cancelled asks took nothing."""
    nothing = [asked(0, kind=kind) for kind in (REFUSED, RETURNED, CANCELLED)]
    assert judge(COURSE, *many(0, 5), *nothing) == []
    assert judge(COURSE, *many(0, 5), asked(0)) != []


def test_all_limits_of_an_ask_are_judged() -> None:
    """The second one as well, and by its cost."""
    both = (KEY, (LOG.scope, "bob"))
    assert judge(COURSE, asked(0, keys=both, cost=5, waits_us=(0, 0))) == []
    assert judge(COURSE, asked(0, keys=both, cost=6, waits_us=(0, 0))) != []
    eleven = [asked(n * 90_000, keys=both, waits_us=(0, 0)) for n in range(6)]
    assert len(judge(COURSE, *eleven)) == 2


def test_a_store_that_forgot_all_may_let_one_limit_more_through() -> None:
    """But in each of its lives the limit, and what is counted twice is not explained by it."""
    restart = Loss("restart", Span(10, 20), is_gap=True, forgets_all=True)
    course = replace(COURSE, losses=[restart])
    assert judge(course, *many(5, 5), *many(25, 5)) == []
    assert judge(COURSE, *many(5, 5), *many(25, 5)) != []
    assert judge(course, *many(5, 5), *many(25, 6)) != []
    assert judge(course, *many(5, 6), *many(25, 5)) != []
    (finding,) = findings(course, [Notes("gateway", many(5, 5) + many(25, 5), [])])
    assert (finding.excess, finding.slack) == (5, 5)


def test_a_failover_explains_what_was_not_replicated_and_no_more() -> None:
    """Decided between the last replicated write and the end of the old primary."""
    failover = Loss("failover", Span(10, 20), keys=frozenset({"ann"}))
    course = replace(COURSE, losses=[failover])
    assert judge(course, *many(5, 3), *many(15, 2), *many(30, 2)) == []
    assert judge(course, *many(5, 3), *many(15, 2), *many(30, 3)) != []
    assert judge(course, *many(5, 3), *many(15, 3), *many(30, 2)) != []
    assert judge(course, *many(5, 5), asked(30)) != []
    elsewhere = failover._replace(keys=frozenset({"bob"}))
    assert judge(replace(COURSE, losses=[elsewhere]), *many(15, 4), *many(30, 2)) != []


def test_two_primaries_explain_what_both_let_through() -> None:
    """While it is not known who decides, each has the limit; afterwards there is one again."""
    split = Loss("split", Span(10, 20), split_us=5)
    course = replace(COURSE, losses=[split])
    assert judge(course, *many(15, 10)) == []
    assert judge(course, *many(15, 12)) != []
    assert judge(course, *many(5, 5), *many(15, 5), asked(30)) != []


def test_what_is_given_back_to_a_store_that_forgot_it_is_explained() -> None:
    """A request that was asked for before the loss and given back after it."""
    restart = Loss("restart", Span(10, 20), is_gap=True, forgets_all=True)
    course = replace(COURSE, losses=[restart])
    returned = asked(5, kind=RETURNED, ended=30)
    assert judge(course, returned, *many(25, 6)) == []
    assert judge(course, asked(5, kind=RETURNED, ended=6), *many(25, 6)) != []
    assert judge(course, asked(25, kind=RETURNED, ended=30), *many(25, 6)) != []
    both = asked(5, kind=REFUSED, keys=(KEY, (LOG.scope, "bob")), waits_us=(0, 0), ended=30)
    assert judge(course, both, *many(25, 6)) != []
    assert judge(replace(course, is_sharded=True), both, *many(25, 6)) == []


def test_windows_are_those_of_the_stores_clock() -> None:
    """Also after it was set."""
    fixed = replace(LOG, algorithm="fixed_window", scope="fixed/key")
    keys = (("fixed/key", "ann"),)
    course = replace(COURSE, limits={"fixed/key": fixed}, wall_us=Span(500_000, 500_000))
    five = many(100, 5, keys=keys)
    assert judge(course, *five, *many(499_999, 1, keys=keys)) != []
    assert judge(course, *five, *many(500_000, 5, keys=keys)) == []
    step = Loss("clock", Span(200, 300), forgets_all=True, step_us=US // 2)
    course = replace(course, losses=[step])
    assert judge(course, *many(499_999, 5, keys=keys), *many(500_000, 1, keys=keys)) != []


def test_a_turn_may_be_as_much_earlier_as_the_answer_was_late() -> None:
    """A server that stops before it answers: the turn was then, and others may follow it."""
    queued = replace(BUCKET, max_wait_us=US)
    course = replace(COURSE, limits={queued.scope: queued}, deadline_us=US)
    at_once = many(0, 5)
    waited = asked(10, received=400_010, waits_us=(99_990,), ended=500_000)
    assert judge(course, *at_once, waited, asked(200_000, ended=200_000)) == []
    known = asked(10, waits_us=(99_990,), ended=100_000)
    assert judge(course, *at_once, known, asked(200_000)) == []
    assert judge(course, *at_once, known, asked(199_999)) != []


def test_leases_end_with_their_release_or_their_period() -> None:
    """More than the limit are found while they are held, whether released, renewed or expired."""
    keys = ((HELD.scope, "ann"),)

    def hold(number: int, at: int) -> Asked:
        return asked(at, number=number, keys=keys, cost=HELD.count)

    end = HELD.period_us
    release = Kept(1, 50, 50, True, True)
    renewed = Kept(1, 40, 45, True, False)
    assert judge(COURSE, hold(1, 0), hold(2, 50), kept=(release,)) == []
    assert judge(COURSE, hold(1, 0), hold(2, 49), kept=(release,)) != []
    assert judge(COURSE, hold(1, 0), hold(2, end)) == []
    assert judge(COURSE, hold(1, 0), hold(2, end - 1)) != []
    assert judge(COURSE, hold(1, 0), hold(2, end + 39), kept=(renewed,)) != []
    assert judge(COURSE, hold(1, 0), hold(2, end + 40), kept=(renewed,)) == []


def test_alone_a_process_keeps_to_what_its_policy_says() -> None:
    """Closed: nothing. Local: its share, which the store's decisions have no part in."""
    assert judge(COURSE, asked(0, alone=True)) != []
    assert judge(COURSE, asked(0, alone=True, kind=REFUSED)) == []
    local = replace(COURSE, on_store_error="local")
    assert judge(local, *many(0, 5), asked(0, alone=True)) == []
    assert judge(local, *many(0, 2, alone=True)) != []


def test_nobody_waits_past_his_bound() -> None:
    """The deadline, or the turn; longer only if the process was kept from running."""
    assert judge(COURSE, asked(0, received=190_000, ended=190_000)) == []
    assert judge(COURSE, asked(0, received=300_000, ended=300_000)) != []
    stopped = asked(0, received=3_000_000, ended=3_000_000, late_us=2_900_000)
    assert judge(COURSE, stopped) == []
    waited = asked(0, waits_us=(50_000,), ended=140_000)
    assert judge(COURSE, waited) == []
    assert judge(COURSE, waited._replace(ended=160_000)) != []
    starved = asked(0, received=6_000_000, ended=6_000_000, late_us=5_950_000)
    assert judge(COURSE, starved) != []
    course = replace(COURSE, stopped={"gateway": [Span(10, 5_000_000)]})
    assert judge(course, starved) == []


def test_who_survives_decides_by_the_store_again() -> None:
    """After the last fault, and to the end."""
    course = replace(COURSE, settled=US, survivors=["gateway"], on_store_error="local")
    assert judge(course, asked(US)) == []
    assert judge(course, asked(US - 1)) != []
    assert judge(course, asked(US, alone=True)) != []
    assert judge(course, asked(US, alone=True), asked(US + 1)) == []
    assert judge(course, asked(US), *many(2 * US, 20, alone=True, kind=REFUSED)) != []


def test_notes_are_read_as_they_were_written() -> None:
    """Of both kinds."""
    one, kept = asked(5, keys=(KEY, ("b", "c")), waits_us=(1, 2)), Kept(5, 6, 7, True, False)
    lines = [line(note).rstrip(b"\n") for note in (one, kept)]
    assert parse("gateway", lines) == Notes("gateway", [one], [kept])


@pytest.mark.parametrize("store", STORES)
def test_a_seed_is_a_schedule(store: str) -> None:
    """The same for the same seed, another for another; every fault comes, one after the other."""
    assert schedule(store, 3, 8) == schedule(store, 3, 8)
    assert schedule(store, 3, 8).of_store != schedule(store, 4, 8).of_store
    for series, kinds in (("of_store", STORES[store]), ("of_gateways", GATEWAY_FAULTS)):
        faults = getattr(schedule(store, 3, 60), series)
        assert {fault.what for fault in faults} == set(kinds)
        assert all(one.at_s + one.lasts_s < other.at_s for one, other in pairwise(faults))
    assert {schedule(store, seed, 8).on_store_error for seed in range(2)} == {"closed", "local"}
