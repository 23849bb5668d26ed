"""Who is left out, for how long, and with which weight targets come back."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream.balancing import (
    Candidate,
    CheckCounter,
    Ejection,
    EjectionRecord,
    TargetHealth,
)
from gateway.proxy.upstream.balancing.slow_start import ramped

S: Final = 1_000_000


def standing_of(
    count: int, failures: int = 3, share: int = 100, slow_start_us: int = 0, *, panic: bool = True
) -> TargetHealth:
    """So many targets, of which a share in percent may be ejected, for 10 s at first."""
    return TargetHealth(
        [Candidate(index, f"t{index}", 1) for index in range(count)],
        Ejection(failures, 10 * S, 60 * S, share, 100),
        slow_start_us,
        is_panic_allowed=panic,
    )


def usable(standing: TargetHealth) -> set[int]:
    """The places of those that may be chosen."""
    return {candidate.index for candidate in standing.usable}


def fail(standing: TargetHealth, index: int, times: int, now: int) -> None:
    """So many failures in a row."""
    for _ in range(times):
        standing.failed(index, now)


STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(["failed", "succeeded", "healthy", "unhealthy", "wait"]),
        st.integers(0, 4),
        st.integers(0, 30 * S),
    ),
    max_size=60,
)


@given(st.integers(1, 5), st.integers(1, 100), st.integers(1, 3), STEPS, st.booleans())
def test_laws_of_standing(
    count: int, share: int, failures: int, steps: list[tuple[str, int, int]], panic: bool
) -> None:
    """Never more ejected than the share (or one), never all; panic mode leaves candidates."""
    standing = standing_of(count, failures, share, 7 * S, panic=panic)
    now = 0
    was_ejected = set[int]()
    for what, place, pause in steps:
        index = place % count
        if what == "wait":
            now += pause
        elif what == "failed":
            standing.failed(index, now)
        elif what == "succeeded":
            standing.succeeded(index, now)
        else:
            standing.checked(index, now, is_healthy=what == "healthy")
        if standing.due_us <= now:
            standing.refresh(now)
        ejected = [one for one in range(count) if standing.is_ejected(one)]
        assert len(ejected) <= max(1, count * share // 100)
        assert len(ejected) < count
        healthy = {one for one in range(count) if standing.is_healthy(one)}
        well = healthy - {*ejected}
        if what == "failed":
            assert well or not healthy - was_ejected, "the last that was well was ejected"
        was_ejected = {*ejected}
        assert usable(standing) == (well or ((healthy or {*range(count)}) if panic else set()))
        assert standing.is_panic == (not well)
        assert standing.due_us > now
        for candidate in standing.usable:
            assert 0 < candidate.weight <= candidate.full_weight


def test_failures_in_a_row_eject() -> None:
    """A success in between restarts the count."""
    standing = standing_of(3)
    fail(standing, 1, 2, 0)
    standing.succeeded(1, 0)
    fail(standing, 1, 2, 0)
    assert usable(standing) == {0, 1, 2}

    (change,) = standing.failed(1, 5)
    assert (change.target, change.kind, change.for_us) == (1, "ejected", 10 * S)
    assert usable(standing) == {0, 2}
    assert standing.due_us == 10 * S + 5


def test_an_ejected_target_comes_back_on_trial() -> None:
    """One failure ejects it again, each time for twice as long, up to the longest."""
    standing = standing_of(2)
    fail(standing, 0, 3, 0)
    lengths = []
    for _ in range(5):
        begin, now = standing.due_us, standing.due_us
        assert [change.kind for change in standing.refresh(now)] == ["returned"]
        assert usable(standing) == {0, 1}
        standing.failed(0, now)
        lengths.append((standing.due_us - begin) // S)
    assert lengths == [20, 40, 60, 60, 60]


def test_a_target_that_does_well_is_forgiven() -> None:
    """After as long as it was left out last, the time begins small again."""
    standing = standing_of(2)
    fail(standing, 0, 3, 0)
    standing.refresh(10 * S)
    standing.succeeded(0, 15 * S)
    fail(standing, 0, 3, 15 * S)
    assert standing.due_us == 35 * S, "too soon to be forgiven"

    standing.refresh(35 * S)
    standing.succeeded(0, 55 * S)
    assert standing.has_no_failures(0)
    fail(standing, 0, 3, 55 * S)
    assert standing.due_us == 65 * S


def test_one_target_is_never_ejected() -> None:
    """No other target is better."""
    standing = standing_of(1)
    fail(standing, 0, 99, 0)
    assert usable(standing) == {0}


def test_no_more_are_ejected_than_the_share() -> None:
    """The next one goes when there is room for it again."""
    standing = standing_of(4, share=50)
    for index in range(4):
        fail(standing, index, 3, index)
    assert usable(standing) == {2, 3}

    standing.refresh(10 * S)
    standing.failed(3, 10 * S)
    assert usable(standing) == {0, 2}


def test_the_last_that_is_well_is_never_ejected() -> None:
    """However it fails: the others are known to be worse."""
    standing = standing_of(3)
    for index in (0, 1):
        standing.checked(index, 0, is_healthy=False)
    fail(standing, 2, 99, 1)
    assert usable(standing) == {2}
    standing.checked(1, 2, is_healthy=True)
    standing.failed(2, 3)
    assert usable(standing) == {1}


def test_who_is_ejected_is_better_than_who_fails_checks() -> None:
    """When checks take the last one that was well, the ejected one is used, and not the dead."""
    standing = standing_of(3)
    standing.checked(0, 0, is_healthy=False)
    fail(standing, 1, 3, 0)
    standing.checked(2, 0, is_healthy=False)
    assert standing.is_panic
    assert usable(standing) == {1}


def test_what_was_sent_before_an_ejection_does_not_end_it() -> None:
    """Neither do requests that are sent there because no other target is left."""
    standing = standing_of(2)
    fail(standing, 0, 3, 0)
    standing.succeeded(0, 1)
    assert standing.is_ejected(0)


def test_checks_that_pass_again_end_an_ejection() -> None:
    """The target was restarted: what failed was another one, in a way."""
    standing = standing_of(2)
    fail(standing, 0, 3, 0)
    standing.checked(0, 1, is_healthy=False)
    assert usable(standing) == {1}
    (change,) = standing.checked(0, 2, is_healthy=True)
    assert change.kind == "healthy"
    assert usable(standing) == {0, 1}
    fail(standing, 0, 2, 3)
    assert usable(standing) == {0, 1}


def test_when_nobody_is_left_all_are_used_or_nobody() -> None:
    """As the upstream wants it."""
    for panic, expected in ((True, {0, 1}), (False, set[int]())):
        standing = standing_of(2, panic=panic)
        for index in (0, 1):
            standing.checked(index, 0, is_healthy=False)
        was_panic = standing.is_panic
        assert usable(standing) == expected
        standing.checked(1, 1, is_healthy=True)
        assert (was_panic, standing.is_panic) == (True, False)
        assert usable(standing) == {1}


@given(
    st.integers(1, 1_000_000),
    st.integers(1, 3600 * S),
    st.lists(st.integers(0, 4000 * S), min_size=2, max_size=2).map(sorted),
)
def test_a_slow_start_only_rises(full: int, duration: int, moments: list[int]) -> None:
    """From a tenth, never above the whole, and the whole at its end."""
    early, late = (ramped(full, moment, duration) for moment in moments)
    assert 1 <= early <= late <= full
    assert early >= full // 10
    assert ramped(full, duration, duration) == full


def test_a_target_that_comes_back_starts_slowly() -> None:
    """Half its time, half its weight; then it is as heavy as before, and nothing is due."""
    standing = standing_of(2, slow_start_us=20 * S)
    fail(standing, 0, 3, 0)
    standing.refresh(10 * S)
    candidate = next(one for one in standing.usable if one.index == 0)
    weights = []
    while standing.due_us < 1 << 60:
        standing.refresh(standing.due_us)
        weights.append(candidate.weight)
    assert weights == sorted(weights)
    assert len(weights) <= 51
    assert 450 < weights[len(weights) // 2] < 550
    assert weights[-1] == candidate.full_weight


@given(st.integers(1, 5), st.integers(1, 5), st.lists(st.booleans(), max_size=40))
def test_rows_of_checks_decide(up: int, down: int, results: list[bool]) -> None:
    """So many in a row; the first check of all is believed at once."""
    counter = CheckCounter(up, down)
    for number in range(len(results)):
        before = counter.is_healthy
        changed = counter.passed(is_passed=results[number])
        assert changed == (counter.is_healthy != before)
        needed = 1 if number == 0 else down if before else up
        row = results[max(0, number + 1 - needed) : number + 1]
        if changed:
            assert row == [not before] * needed
    if len(results) >= max(up, down) and len({*results[-max(up, down) :]}) == 1:
        assert counter.is_healthy == results[-1]


def test_what_another_worker_has_ejected_is_ejected_as_long() -> None:
    """It is on trial afterwards, as where it was judged, and the next time is as long there."""
    one, other = standing_of(3), standing_of(3)
    fail(one, 0, 3, 1000)
    record = one.ejection_of(0)
    assert record is not None
    (change,) = other.learn(0, record, 2000)
    assert (change.kind, change.is_learned) == ("ejected", True)
    assert usable(one) == usable(other) == {1, 2}
    assert other.ejection_of(0) == record
    assert other.learn(0, record, 2001) == []
    for standing in (one, other):
        (change,) = standing.refresh(record.until_us)
        assert (change.kind, change.is_learned) == ("returned", standing is other)
        standing.failed(0, record.until_us)
    assert other.ejection_of(0) == one.ejection_of(0)


def test_what_is_over_is_not_learned() -> None:
    """Nor what checks have ended here, nor one target more than may be ejected."""
    standing = standing_of(3, share=40)
    assert standing.learn(0, EjectionRecord(1000, 1), 1000) == []
    assert standing.learn(0, EjectionRecord(2000, 1), 1000) != []
    standing.checked(0, 1100, is_healthy=False)
    standing.checked(0, 1200, is_healthy=True)
    assert usable(standing) == {0, 1, 2}
    assert standing.learn(0, EjectionRecord(2000, 1), 1300) == []
    assert standing.learn(0, EjectionRecord(2001, 2), 1300) != []
    assert standing.learn(1, EjectionRecord(3000, 1), 1300) == []
    assert standing.ejection_of(1) is None
