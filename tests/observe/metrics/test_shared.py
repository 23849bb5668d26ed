"""Counters in a ledger: code that counts sees no difference, and who reads it sees all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.board.ledger import Ledger, entries
from gateway.observe.metrics import GatewayMetrics, ShownNames, add_counts
from gateway.observe.metrics.exposition import render
from tests.board.cutting import Killed, Memory
from tests.observe.metrics.room import Room

NAMES = ("/a", "/b", "/c")


@pytest.fixture
def room() -> Room:
    """Memory that no process has used."""
    return Room()


def names(*routes: str) -> ShownNames:
    """A configuration with these routes."""
    return ShownNames(routes, (), (), (), ())


def lines(metrics: GatewayMetrics) -> list[bytes]:
    """A scrape, in an order that does not depend on who came first."""
    return sorted(render(metrics).splitlines())


COUNTED = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(100, 700), st.integers(0, 10**8)), max_size=20
)


@given(lives=st.lists(COUNTED, max_size=4))
def test_processes_at_one_place_count_like_one(lives: list[list[tuple[str, int, int]]]) -> None:
    """However many follow each other; none of them takes leave."""
    room, plain = Room(), GatewayMetrics("1", ManualClock(1))
    for life in lives:
        process = room.process()
        for name, status, duration_us in life:
            for metrics in (process, plain):
                metrics.route(name).answered(status, duration_us)
                metrics.policy(name).passed += 1
                metrics.upstream(name).errors["reset"] += 2
                metrics.store("main").answered(3, duration_us)
                metrics.frontend(name).answers["GET", str(status)] += 1
                metrics.clients_left += 1
                metrics.log.lines_dropped += 1
                metrics.config_reloads["applied"] += 1
                metrics.frontend(name).tally((None, ("SET", "yes")))[1] += 1
                metrics.frontend(name).tally((None, ("SET", "yes")))[0] += 1
        assert lines(room.total()) == lines(plain)


@given(
    counted=st.lists(st.tuples(st.sampled_from((200, 404)), st.integers(0, 10**8)), min_size=1),
    writes=st.integers(0, 200),
)
def test_a_cut_leaves_a_request_or_a_part_of_it(
    counted: list[tuple[int, int]], writes: int
) -> None:
    """Its status, then its duration, then what the durations sum up to: each as before or after."""
    memory = Memory()
    process = Room().process()
    # Structures need real memory; a route has none.
    process.book = type(process.book)(Ledger(memory.chunk))
    metrics = process.route("/a")
    before, after = [0, 0, 0], [0, 0, 0]
    memory.writes = writes
    try:
        for status, duration_us in counted:
            before, after = after, [after[0] + 1, after[1] + 1, after[2] + duration_us]
            metrics.answered(status, duration_us)
    except Killed:
        pass
    total = GatewayMetrics()
    for name, counts in entries(bytes(memory)):
        add_counts(total, name, counts)
    route = total.route("/a")
    found = [sum(route.statuses.values()), sum(route.duration.counts), route.duration.sum_us]
    assert all(now in (was, will) for was, now, will in zip(before, found, after, strict=True))
    assert sorted(found[:2], reverse=True) == found[:2]


def test_what_is_not_configured_any_more_is_not_read(room: Room) -> None:
    """Requests in flight may count on for it, and change nothing of what follows."""
    process = room.process()
    old = process.route("/old")
    old.answered(200, 5)
    process.keep(names("/new"))
    process.settle()
    old.answered(200, 5)
    old.answered(404, 5)
    process.route("/new").answered(200, 7)
    assert room.total().routes.keys() == {"/new"}
    del old
    process.route("/newer").answered(200, 7)
    total = room.total()
    assert {name: dict(of.statuses) for name, of in total.routes.items()} == {
        "/new": {200: 1},
        "/newer": {200: 1},
    }
    process.route("/old").answered(200, 5)
    assert room.total().routes["/old"].statuses == {200: 1}


def test_the_next_process_forgets_what_it_does_not_know(room: Room) -> None:
    """And goes on with the rest, also with what it has not counted itself yet."""
    before = room.process()
    for name in NAMES:
        before.route(name).answered(200, 5)
        before.policy(name).passed += 1
    process = room.process()
    process.route("/a"), process.policy("/a")
    assert room.total().routes.keys() == set(NAMES)
    process.settle()
    total = room.total()
    assert total.routes.keys() == total.policies.keys() == {"/a"}
    assert total.routes["/a"].duration.sum_us == 5
    process.route("/a").answered(200, 6)
    assert room.total().routes["/a"].duration.sum_us == 11


def test_targets_are_shown_when_their_upstream_is_about_them(room: Room) -> None:
    """Another configuration may be prepared and not be used."""
    process = room.process()
    upstream = process.upstream("u")
    first = {"a": upstream.known_target("a")}
    first["a"].requests += 1
    assert not room.total().upstreams["u"].targets
    upstream.targets = first
    process.settle()
    assert room.total().upstreams["u"].targets["a"].requests == 1
    second = {"a": upstream.known_target("a"), "b": upstream.known_target("b")}
    second["b"].requests += 1
    process.settle()
    assert room.total().upstreams["u"].targets.keys() == {"a"}
    upstream.targets = second
    second["b"].requests += 1
    process.settle()
    assert room.total().upstreams["u"].targets["b"].requests == 2
    # The next process begins with the configuration, and finds them.
    upstream = (process := room.process()).upstream("u")
    upstream.targets = {"a": upstream.known_target("a")}
    process.settle()
    targets = room.total().upstreams["u"].targets
    assert {name: of.requests for name, of in targets.items()} == {"a": 1}


def test_configurations_that_follow_each_other_need_no_more_memory(room: Room) -> None:
    """Each has other routes, and all of them count."""
    process = room.process()
    used = []
    for number in range(300):
        routes = [f"/{number % 7}/{place}" for place in range(20)]
        for name in routes:
            process.route(name).answered(200, 5)
        process.keep(names(*routes))
        process.settle()
        used.append(room.used)
        assert room.total().routes.keys() == set(routes)
    assert used[10] == used[-1]


def test_without_room_one_line_says_so(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    """What had room is read as before; the rest is counted where nobody reads it."""
    process = room.process()
    for number in range(4000):
        process.route(f"/{number}").answered(200, 5)
        process.policy(f"/{number}").passed += 1
    process.settle()
    (line,) = caplog.messages
    assert line.startswith("there is no memory for more counters (full)")
    for name, route in room.total().routes.items():
        assert route.statuses in ({}, {200: 1}), name
    assert len(room.total().routes) > 1000
