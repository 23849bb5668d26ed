"""Breakers of several workers: one opens all, one worker tries, and its outcome is that of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from select import select

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.breaker import BreakerState
from gateway.board.board import Board, Seat
from gateway.proxy.upstream.balancing import NO_TICKET, BreakerNumbers
from gateway.proxy.upstream.shared_breaker import SharedBreaker

US = 1_000_000
OPEN_US = 10 * US
START_US = 1000 * US
TRIALS = 2


def _breaker(seat: Seat, now_us: int = START_US) -> SharedBreaker:
    numbers = BreakerNumbers(1, 2, 2, 10 * US, OPEN_US, TRIALS)
    return SharedBreaker(numbers, seat, "pay", now_us)


def _fail(breaker: SharedBreaker, now_us: int) -> None:
    """Two requests fail, which opens it."""
    for _ in range(2):
        breaker.report(breaker.admit(now_us), now_us, is_failure=True)
    assert breaker.state is BreakerState.OPEN


@pytest.fixture
def board() -> Iterator[Board]:
    with closing(Board(2)) as made:
        yield made


def test_one_opens_all(board: Board) -> None:
    """The others are woken, and stay open as long; one that starts later is open, too."""
    seats = [board.seat(board.take()) for _ in range(3)]
    first, second = (_breaker(seat) for seat in seats[:2])
    _fail(first, START_US)
    assert select([seats[1].heard], [], [], 0)[0]
    assert second.learn()
    assert second.admit(START_US + 1) == NO_TICKET
    assert second.retry_after_us(START_US + US) == OPEN_US - US
    third = _breaker(seats[2])
    assert third.admit(START_US + 1) == NO_TICKET


def test_what_is_over_opens_no_new_one(board: Board) -> None:
    """A breaker that a reload ended while it was open says nothing about one that comes later."""
    seats = [board.seat(board.take()) for _ in range(3)]
    first, second = (_breaker(seat) for seat in seats[:2])
    _fail(first, START_US)
    second.learn()
    anew = _breaker(seats[2], START_US + OPEN_US)
    assert anew.state is BreakerState.CLOSED
    assert not anew.learn()
    assert anew.admit(START_US + OPEN_US) != NO_TICKET
    assert _breaker(seats[2], START_US + OPEN_US - 1).state is BreakerState.OPEN


def test_one_worker_tries(board: Board) -> None:
    """The others refuse until they know how it went; if it went well, all are closed."""
    first, second = (_breaker(board.seat(board.take())) for _ in range(2))
    _fail(first, START_US)
    second.learn()
    now_us = START_US + OPEN_US
    tickets = [second.admit(now_us) for _ in range(TRIALS)]
    assert NO_TICKET not in tickets
    assert [first.admit(now_us + 1), second.admit(now_us + 1)] == [NO_TICKET] * 2
    for ticket in tickets:
        second.report(ticket, now_us + 2, is_failure=False)
    assert first.learn()
    assert {first.state, second.state} == {BreakerState.CLOSED}
    assert not second.learn()


def test_a_trial_that_fails_opens_all_again(board: Board) -> None:
    """For as long as the first time, from then on."""
    first, second = (_breaker(board.seat(board.take())) for _ in range(2))
    _fail(first, START_US)
    second.learn()
    now_us = START_US + OPEN_US
    ticket = second.admit(now_us)
    assert first.admit(now_us + 1) == NO_TICKET
    second.report(ticket, now_us + US, is_failure=True)
    assert first.admit(now_us + OPEN_US) == NO_TICKET
    assert first.admit(now_us + US + OPEN_US) != NO_TICKET


def test_a_worker_that_is_killed_while_it_tries_is_replaced(board: Board) -> None:
    """Without an outcome for as long as it was open, another tries."""
    first, number = _breaker(board.seat(board.take())), board.take()
    second = _breaker(board.seat(number))
    _fail(second, START_US)
    first.learn()
    now_us = START_US + OPEN_US
    assert second.admit(now_us) != NO_TICKET
    assert first.admit(now_us + 1) == NO_TICKET
    board.free(number)
    assert first.admit(now_us + OPEN_US - 1) == NO_TICKET
    assert first.admit(now_us + OPEN_US) != NO_TICKET


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["request", "good", "bad", "bell"]),
        st.integers(1, 4 * US),
    ),
    max_size=80,
)


@given(STEPS)
def test_only_one_worker_has_trials(steps: list[tuple[int, str, int]]) -> None:
    """In any order of requests, outcomes and bells: no more trials at a time than configured."""
    with closing(Board(2)) as board:
        workers = [_breaker(board.seat(board.take())) for _ in range(3)]
        tickets: list[list[int]] = [[], [], []]
        now_us = START_US
        for number, step, passed_us in steps:
            now_us += passed_us
            worker = workers[number]
            if step == "bell":
                worker.learn()
            elif step == "request":
                ticket = worker.admit(now_us)
                if ticket != NO_TICKET:
                    tickets[number].append(ticket)
            elif tickets[number]:
                worker.report(tickets[number].pop(), now_us, is_failure=step == "bad")
            for one in workers:
                one.learn()
            trying = [one for one in workers if one.state is BreakerState.HALF_OPEN]
            assert len(trying) <= 1
