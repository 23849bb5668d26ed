"""How inherited sockets are announced, which listener takes which, and how workers divide them."""

from __future__ import annotations

import socket
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import GatewayError
from gateway.net.inherited import (
    UPGRADE,
    Announced,
    Announcement,
    InheritedPlace,
    announcement,
    missing,
    shares,
    taken,
)

PID: Final = 77
V4, V6, UNIX = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
ALL4, ALL6 = (V4, ("0.0.0.0", 80)), (V6, ("::", 80, 0, 0))  # noqa: S104 - nothing is bound


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({}, ["", ""]),
        ({"LISTEN_FDNAMES": "web:admin"}, ["web", "admin"]),
        ({"LISTEN_FDNAMES": "web"}, ["web", ""]),
        ({"LISTEN_FDNAMES": "web:admin:more"}, ["web", "admin"]),
    ],
)
def test_a_service_manager_announces_descriptors_from_three_on(
    names: dict[str, str], found: list[str]
) -> None:
    """With their names, as far as there are any (sd_listen_fds(3))."""
    variables = {"LISTEN_PID": str(PID), "LISTEN_FDS": "2", **names}
    announced = announcement(variables, PID)
    assert announced == Announcement((Announced(3, found[0]), Announced(4, found[1])))


@pytest.mark.parametrize(
    "variables",
    [{}, {"LISTEN_FDS": "2"}, {"LISTEN_PID": "78", "LISTEN_FDS": "2"}, {"LISTEN_PID": "x"}],
)
def test_what_was_meant_for_another_process_is_left_alone(variables: dict[str, str]) -> None:
    """A process that a service starts sees the variables, too."""
    assert announcement(variables, PID) == Announcement()


@pytest.mark.parametrize("count", ["", "two", "-1", "²"])
def test_a_number_that_is_none_is_an_error(count: str) -> None:
    """Sockets may be lost otherwise."""
    with pytest.raises(GatewayError, match="LISTEN_FDS is"):
        announcement({"LISTEN_PID": str(PID), "LISTEN_FDS": count}, PID)


@given(
    sockets=st.lists(st.builds(Announced, st.integers(3, 999), st.text(), st.booleans())),
    channel=st.integers(3, 999),
    predecessors=st.frozensets(st.integers(2, 99_999)),
)
def test_a_successor_reads_what_its_predecessor_wrote(
    sockets: list[Announced], channel: int, predecessors: frozenset[int]
) -> None:
    """Whatever names there are; a service manager's variables do not matter then."""
    said = Announcement(tuple(sockets), channel, predecessors)
    variables = {UPGRADE: said.to_text(), "LISTEN_PID": str(PID), "LISTEN_FDS": "1"}
    assert announcement(variables, PID) == said


def test_a_listener_takes_every_socket_at_its_addresses() -> None:
    """And binds what none of them has."""
    has = [
        InheritedPlace(V4, ("0.0.0.0", 80)),  # noqa: S104
        InheritedPlace(V4, ("127.0.0.1", 80)),
        InheritedPlace(V4, ("0.0.0.0", 80)),  # noqa: S104
        InheritedPlace(UNIX, ("/run/s.sock",)),
    ]
    assert taken(has, [ALL4, ALL6]) == [0, 2]
    assert missing([has[0], has[2]], [ALL4, ALL6]) == [ALL6]
    assert taken(has, [(UNIX, ("/run/s.sock",))]) == [3]
    assert taken(has, [(V4, ("127.0.0.1", 81))]) == []


def test_one_socket_may_have_both_families() -> None:
    """As those that systemd opens for a port alone; a listener for IPv4 only does not take it."""
    both = InheritedPlace(*ALL6, has_both=True)
    assert taken([both], [ALL4, ALL6]) == [0]
    assert missing([both], [ALL4, ALL6]) == []
    assert taken([both], [ALL4]) == []
    assert missing([InheritedPlace(*ALL6)], [ALL4, ALL6]) == [ALL4]
    assert missing([both], [(V4, ("127.0.0.1", 80))]) == [(V4, ("127.0.0.1", 80))]


@given(sockets=st.integers(1, 200), workers=st.integers(1, 200))
def test_each_worker_gets_equally_many_sockets_and_none_is_left_over(
    sockets: int, workers: int
) -> None:
    """The kernel gives each socket equally many connections, and one without a worker loses its."""
    more, positions = shares(sockets, workers)
    assert sorted(at for each in positions for at in each) == list(range(sockets + more))
    assert len({len(each) for each in positions}) == 1
    assert 0 <= more < workers
