"""Who is let in, and who makes room: decisions without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from select import select

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.board.board import Board
from gateway.proxy.client.admission import LOOK_AGAIN_S, MOST, Admission, ClientBounds, affordable


class _Client:
    """A connection, as the decision sees it."""

    def __init__(self, key: str = "a", *, rank: int = 0, due: float = 0.0) -> None:
        self.peer_key = key
        self.is_trusted = False
        self.due = due
        self.rank = rank
        self.looks = 0

    def spare(self, now: float) -> int:
        self.looks += 1
        return self.rank

    def make_room(self) -> None:
        raise AssertionError("deciding closes nothing")


def _full(*clients: _Client) -> Admission:
    return Admission(set(clients), ClientBounds(len(clients), len(clients), None))


def test_the_longest_idle_goes_first_and_then_the_slowest_head() -> None:
    """Each new client replaces one of them, until none is left."""
    late, early = _Client(rank=1, due=9), _Client(rank=1, due=5)
    slow, slower = _Client(rank=2, due=4), _Client(rank=2, due=3)
    clients = {late, slow, _Client(), early, slower}
    admission = Admission(clients, ClientBounds(len(clients), len(clients), None))
    leavers = [admission.judge(_Client(), 0.0) for _ in range(4)]
    for _, leaver in leavers:
        assert isinstance(leaver, _Client)
        leaver.rank = 0

    assert leavers == [("", early), ("", late), ("", slower), ("", slow)]
    assert admission.judge(_Client(), 0.0) == ("max_connections", None)


def test_who_has_begun_something_else_meanwhile_stays() -> None:
    """Whether a connection can be spared is seen again when its turn has come."""
    busy, active, idle = (_Client(rank=1, due=due) for due in (1, 2, 3))
    admission = _full(busy, active, idle, _Client(rank=1, due=0))
    admission.judge(_Client(), 0.0)
    busy.rank, active.due = 0, 7

    assert admission.judge(_Client(), 0.0) == ("", idle)


def test_a_flood_is_refused_without_a_look_at_everybody() -> None:
    """All are looked at once in a while, however many come."""
    client = _Client()
    admission = _full(client)
    for _ in range(1000):
        assert admission.judge(_Client(), 1.0) == ("max_connections", None)
    assert client.looks == 1
    client.rank = 1
    assert admission.judge(_Client(), 1.0 + LOOK_AGAIN_S) == ("", client)


def test_an_address_has_its_own_limit() -> None:
    """Other addresses connect all the same; a leaving client frees a place; proxies are exempt."""
    admission = Admission(set(), ClientBounds(100, 100, 2))
    first, second, proxy = _Client("a"), _Client("a"), _Client("a")
    proxy.is_trusted = True

    assert [admission.judge(one, 0.0)[0] for one in (first, second)] == ["", ""]
    assert admission.judge(_Client("a"), 0.0) == ("max_connections_per_ip", None)
    assert admission.judge(_Client("b"), 0.0) == ("", None)
    assert admission.judge(proxy, 0.0) == ("", None)
    admission.release(proxy)
    assert admission.judge(_Client("a"), 0.0) == ("max_connections_per_ip", None)
    admission.release(first)
    assert admission.judge(_Client("a"), 0.0) == ("", None)


def test_who_is_refused_in_all_is_not_counted_for_its_address() -> None:
    """Or its address would never have its places again."""
    clients: set[_Client] = {_Client("z")}
    admission = Admission(clients, ClientBounds(1, 1, 1))
    assert admission.judge(_Client("a"), 0.0)[0] == "max_connections"
    clients.clear()

    assert admission.judge(_Client("a"), 0.0) == ("", None)


class _Worker:
    """A worker at a board: its clients, and who of them is let in."""

    def __init__(self, board: Board, bounds: ClientBounds) -> None:
        self.number = board.take()
        self.seat = board.seat(self.number)
        self.clients: set[_Client] = set()
        self.admission = Admission(self.clients, bounds, self.seat)

    def connect(self, client: _Client) -> str:
        """The limit that refuses a client; a client that is let in stays."""
        limit, leaver = self.admission.judge(client, 0.0)
        if not limit:
            self.clients.add(client)
        if isinstance(leaver, _Client):
            self.leave(leaver)
        return limit

    def leave(self, client: _Client) -> None:
        self.clients.remove(client)
        self.admission.release(client)


@pytest.fixture
def board() -> Iterator[Board]:
    with closing(Board(3)) as made:
        yield made


def test_limits_hold_for_all_workers_together(board: Board) -> None:
    """A place that one worker fills is missing in the others; who leaves frees it for any."""
    first, second = (_Worker(board, ClientBounds(100, 3, 2)) for _ in range(2))
    client = _Client("a")
    assert [first.connect(client), second.connect(_Client("a"))] == ["", ""]
    assert first.connect(_Client("a")) == "max_connections_per_ip"
    assert second.connect(_Client("a")) == "max_connections_per_ip"
    assert second.connect(_Client("b")) == ""
    assert first.connect(_Client("c")) == "max_connections"
    first.leave(client)
    assert second.connect(_Client("a")) == ""
    assert first.connect(_Client("d")) == "max_connections"


def test_a_refused_client_is_counted_nowhere(board: Board) -> None:
    """Its place in all and that of its address are free again."""
    first, second = (_Worker(board, ClientBounds(100, 1, 1)) for _ in range(2))
    there = _Client("a")
    assert first.connect(there) == ""
    assert second.connect(_Client("b")) == "max_connections"
    assert second.connect(_Client("a")) == "max_connections_per_ip"
    first.leave(there)
    assert second.connect(_Client("b")) == ""


def test_the_places_of_a_killed_worker_are_free_once_it_was_reaped(board: Board) -> None:
    """The supervisor clears its seat, and its successor starts from nothing."""
    first, second = (_Worker(board, ClientBounds(100, 2, 1)) for _ in range(2))
    assert [first.connect(_Client("a")), first.connect(_Client("b"))] == ["", ""]
    assert second.connect(_Client("c")) == "max_connections"
    board.free(first.number)
    third = _Worker(board, ClientBounds(100, 2, 1))
    assert third.number == first.number
    assert [third.connect(_Client("a")), second.connect(_Client("b"))] == ["", ""]
    assert third.connect(_Client("b")) == "max_connections_per_ip"


def test_a_worker_makes_room_for_another(board: Board) -> None:
    """One that has nothing to close wakes the one that has most, which then closes a client."""
    first, second = (_Worker(board, ClientBounds(100, 2, None)) for _ in range(2))
    idle = _Client(rank=1)
    assert [first.connect(_Client()), first.connect(idle)] == ["", ""]
    assert second.connect(_Client()) == "max_connections"
    assert select([first.seat.heard, second.seat.heard], [], [], 0)[0] == [first.seat.heard]
    first.seat.silence()
    assert first.admission.make_room(0.0) is idle
    first.leave(idle)
    assert first.admission.make_room(0.0) is None
    assert second.connect(_Client()) == ""


def test_another_configuration_counts_all_that_are_there(board: Board) -> None:
    """Whether addresses are counted from now on, or no longer."""
    first, second = (_Worker(board, ClientBounds(100, None, None)) for _ in range(2))
    assert [first.connect(_Client("a")) for _ in range(3)] == ["", "", ""]
    for worker in (first, second):
        worker.admission.reconfigure(ClientBounds(100, None, 3))
    assert second.connect(_Client("a")) == "max_connections_per_ip"
    first.admission.reconfigure(ClientBounds(100, None, None))
    assert second.connect(_Client("a")) == ""


@given(st.data())
def test_no_limit_is_exceeded_by_any_order_of_clients(data: st.DataObject) -> None:
    """Of three workers, one of which is killed now and then."""
    bounds = ClientBounds(100, data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3)))
    with closing(Board(2)) as board:
        workers = [_Worker(board, bounds) for _ in range(3)]
        steps = st.tuples(st.integers(0, 2), st.sampled_from("abcx"))
        for number, key in data.draw(st.lists(steps, max_size=60)):
            worker = workers[number]
            there = [client for one in workers for client in one.clients]
            same = [client for client in there if client.peer_key == key]
            if key == "x" and data.draw(st.booleans()):
                board.free(worker.number)
                workers[number] = _Worker(board, bounds)
            elif bool(worker.clients) and data.draw(st.booleans()):
                worker.leave(data.draw(st.sampled_from(list(worker.clients))))
            elif bounds.per_ip is not None and len(same) >= bounds.per_ip:
                assert worker.connect(_Client(key)) == "max_connections_per_ip"
            elif bounds.all is not None and len(there) >= bounds.all:
                assert worker.connect(_Client(key)) == "max_connections"
            else:
                assert worker.connect(_Client(key)) == ""


@pytest.mark.parametrize(
    ("open_files", "upstream_connections", "clients"),
    [
        (65_536, 1_024, 64_384),
        (1_024, 1_024, 448),
        (1_024, 100, 796),
        (256, 1_024, 96),
        (64, 1_024, 16),
        (64, 0, 32),
        (8, 1_024, 1),
        (1, 0, 1),
        (-1, 1_024, MOST),
        (1 << 30, 1_024, MOST),
    ],
)
def test_files_are_shared_with_upstreams(
    open_files: int, upstream_connections: int, clients: int
) -> None:
    """Those that may be open, less what the gateway needs itself and what upstreams may take."""
    assert affordable(open_files, upstream_connections) == clients
