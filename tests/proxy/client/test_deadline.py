"""What a client has to do, and what happens if it does not, without a clock."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from gateway.proxy.client.deadline import FAIR_S, LAST_CALL_S, ClientDeadline, give_up
from gateway.proxy.client.handler import ServedRequest
from gateway.proxy.client.timeouts import ClientTimeouts

TIMES = ClientTimeouts(head=5, body=3, idle=60, linger=2, rate=0)


class Kept(asyncio.Transport):
    """A transport with bytes that its kernel has not taken."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def get_write_buffer_size(self) -> int:
        """So many."""
        return self.size

    def is_closing(self) -> bool:
        """It is open."""
        return False


class Counts:
    """Counts those who are late."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def head_is_late(self) -> None:
        """Count one."""
        self.told.append("head")

    def reader_is_late(self, served: ServedRequest | None) -> None:
        """Count one."""
        self.told.append("reader")


class TimedOut:
    """A connection whose time may be over."""

    def __init__(self, size: int = 0) -> None:
        self.transport = Kept(size)
        self.current: ServedRequest | None = None
        self.end = ""

    def close(self) -> None:
        """Note it."""
        self.end = "closed"

    def break_off(self) -> None:
        """Note it."""
        self.end = "reset"


@pytest.fixture
def counts() -> Counts:
    """Nobody was late yet."""
    return Counts()


def test_each_thing_has_its_time(counts: Counts) -> None:
    """A head, a request, the last one, a body and a response."""
    deadline = ClientDeadline(TIMES, counts)
    assert deadline.due == inf
    deadline.send_head(100)
    assert (deadline.due, deadline.is_for_head, deadline.is_for_reading) == (105, True, False)
    assert not deadline.is_slow_head(100 + FAIR_S / 2)
    assert deadline.is_slow_head(100 + FAIR_S)
    deadline.send_request(100)
    assert (deadline.due, deadline.is_for_head) == (160, False)
    deadline.send_last_request(100)
    assert deadline.due == 100 + LAST_CALL_S
    deadline.send_body(100, lambda: None, 0, 0)
    assert deadline.due == 103
    deadline.read(100, None)
    assert (deadline.due, deadline.is_for_reading) == (103, True)
    deadline.read_and_leave(100, None)
    assert deadline.due == 102


def test_a_late_head_is_counted_and_ends_the_connection(counts: Counts) -> None:
    """By a reset, if the client has not taken what it was sent before."""
    for size, end in ((0, "closed"), (1, "reset")):
        deadline, client = ClientDeadline(TIMES, counts), TimedOut(size)
        deadline.send_head(100)
        deadline.expire(client, 105)
        assert (client.end, deadline.due) == (end, inf)
    assert counts.told == ["head", "head"]


def test_an_idle_client_that_still_reads_is_not_idle(counts: Counts) -> None:
    """It has the time of a reader, and when the gateway stops a last call each time."""
    deadline, client = ClientDeadline(TIMES, counts), TimedOut(9)
    deadline.send_request(100)
    deadline.expire(client, 160)
    assert deadline.is_for_reading
    deadline.send_last_request(160)
    deadline.expire(client, 161)
    assert (deadline.due, client.end) == (161 + LAST_CALL_S, "")
    client.transport.size = 0
    deadline.expire(client, 162)
    assert client.end == "closed"


def test_a_reader_that_gets_on_has_more_time(counts: Counts) -> None:
    """One that does not is counted, and its connection is reset."""
    deadline, client = ClientDeadline(TIMES, counts), TimedOut(9)
    deadline.read(100, client.transport)
    client.transport.size = 8
    deadline.expire(client, 103)
    assert (deadline.due, client.end) == (106, "")
    deadline.expire(client, 106)
    assert (client.end, counts.told) == ("reset", ["reader"])


def test_one_that_lingers_has_time_as_long_as_it_reads(counts: Counts) -> None:
    """Then it is reset, and not counted."""
    deadline, client = ClientDeadline(TIMES, counts), TimedOut(9)
    deadline.read_and_leave(100, client.transport)
    client.transport.size = 8
    deadline.expire(client, 102)
    assert (deadline.due, client.end) == (104, "")
    deadline.expire(client, 104)
    assert (client.end, counts.told) == ("reset", [])


def test_others_are_called(counts: Counts) -> None:
    """A body and a tunnel define what happens."""
    called: list[str] = []
    deadline = ClientDeadline(TIMES, counts)
    deadline.send_body(100, lambda: called.append("body"), 0, 0)
    deadline.expire(TimedOut(), 103)
    deadline.other(200, lambda: called.append("tunnel"))
    assert deadline.due == 200
    deadline.expire(TimedOut(), 200)
    assert called == ["body", "tunnel"]


def test_giving_up_a_closed_connection() -> None:
    """Nothing is left to send."""
    client = TimedOut()
    give_up(client)
    assert client.end == "closed"
