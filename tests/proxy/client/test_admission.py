"""Who is let in, and who makes room: decisions without a socket."""

from __future__ import annotations

import pytest

from gateway.proxy.client.admission import LOOK_AGAIN_S, MOST, Admission, affordable


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
    return Admission(set(clients), len(clients), None)


def test_the_longest_idle_goes_first_and_then_the_slowest_head() -> None:
    """Each new client replaces one of them, until none is left."""
    late, early = _Client(rank=1, due=9), _Client(rank=1, due=5)
    slow, slower = _Client(rank=2, due=4), _Client(rank=2, due=3)
    clients = {late, slow, _Client(), early, slower}
    admission = Admission(clients, len(clients), None)
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
    admission = Admission(set(), 100, 2)
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
    admission = Admission(clients, 1, 1)
    assert admission.judge(_Client("a"), 0.0)[0] == "max_connections"
    clients.clear()

    assert admission.judge(_Client("a"), 0.0) == ("", None)


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
