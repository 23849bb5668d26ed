"""Seats at a board, in several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from select import select

import pytest

from gateway.board.board import CONNECTIONS, SEATS_EACH, WAITING, Board, Seat


@pytest.fixture
def board() -> Iterator[Board]:
    with closing(Board(2)) as made:
        yield made


def _in_child(run: Callable[[], None]) -> int:
    """Fork, run a function in the child, and return its id."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return pid


def _seats(board: Board, count: int) -> list[Seat]:
    return [board.seat(board.take()) for _ in range(count)]


def test_processes_read_what_others_write(board: Board) -> None:
    """Each its own numbers, and the sum is the same for all."""
    first, second = _seats(board, 2)

    def write() -> None:
        second.set(CONNECTIONS, 5)
        second.write(second.spot("name"), 7)

    first.set(CONNECTIONS, 3)
    assert os.waitpid(_in_child(write), 0)[1] == 0
    assert first.total(CONNECTIONS) == second.total(CONNECTIONS) == 8
    assert first.total(WAITING) == 0
    assert first.others(first.spot("name")) == [7]
    assert second.others(second.spot("name")) == []
    assert first.others(first.spot("another")) == []


def test_a_killed_process_leaves_nothing(board: Board) -> None:
    """Its seat is cleared for the next one."""
    own, other = board.seat(board.take()), board.take()
    seat = board.seat(other)

    def write_and_stay() -> None:
        seat.set(WAITING, 9)
        seat.write(seat.spot("name"), 9)
        seat.ring_others()
        signal.pause()

    pid = _in_child(write_and_stay)
    assert select([own.heard], [], [], 30)[0]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (own.total(WAITING), own.others(own.spot("name"))) == (9, [9])
    board.free(other)
    assert (own.total(WAITING), own.others(own.spot("name"))) == (0, [])
    assert board.take() == other


def test_there_are_seats_for_workers_that_were_replaced(board: Board) -> None:
    """And no more: a successor waits until one of them has ended."""
    taken = [board.take() for _ in range(SEATS_EACH * 2)]
    assert sorted(taken) == [*range(SEATS_EACH * 2)]
    with pytest.raises(OSError, match="have not ended"):
        board.take()
    board.free(2)
    assert board.take() == 2


def test_a_bell_is_heard_by_the_others_until_it_is_silenced(board: Board) -> None:
    """However often it was rung; one that nobody listens to never blocks."""
    first, second, third = seats = _seats(board, 3)
    heard = [seat.heard for seat in seats]
    for _ in range(10_000):
        first.ring_others()
    assert select(heard, [], [], 0)[0] == [second.heard, third.heard]
    second.silence()
    third.silence()
    third.silence()
    assert select(heard, [], [], 0)[0] == []


def test_the_one_with_most_is_another(board: Board) -> None:
    """A worker that has the most itself finds the next."""
    first, second, third = _seats(board, 3)
    for seat, number in ((first, 9), (second, 1), (third, 4)):
        seat.set(CONNECTIONS, number)
    second.ring(second.largest(CONNECTIONS))
    first.ring(first.largest(CONNECTIONS))
    assert select([seat.heard for seat in (first, second, third)], [], [], 0)[0] == [
        first.heard,
        third.heard,
    ]
