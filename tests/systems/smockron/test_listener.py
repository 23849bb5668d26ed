"""Smockron's master: its sockets, what it takes down and whom it holds until when."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.clock import Clock, ManualClock, wall_us
from gateway.config.checking.check import check_text
from gateway.limiter.decider import Decider
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.memory.store import MemoryStore
from gateway.stores.opening import find_store
from gateway.systems.smockron.bounded_log import LINES_PER_SECOND
from gateway.systems.smockron.codec import DelayUntil
from gateway.systems.smockron.listener import SmockronMaster, make_master
from gateway.systems.smockron.other_masters import WAITING_MAX
from gateway.systems.smockron.relay_codec import write_relay
from tests.processes import free_pair
from tests.servers import ClusterServers, RedisServer
from tests.smockron import PROBE_LIMIT, TestGatekeeper, gatekeeper, now_ms
from tests.systems.context import context_of

SECOND_MS: Final = 1_000
HOUR_MS: Final = 3_600_000
SLOW: Final = "1/h burst 3"


@pytest.fixture(scope="module", autouse=True)
def _read_files_first() -> None:
    """A gateway reads its files before its loop begins; a test that has begun must not."""
    find_store("redis://127.0.0.1")
    check_text("routes: { /**: { upstream: http://127.0.0.1:1 } }")


class Run:
    """A master that runs in this process."""

    def __init__(self, master: SmockronMaster, metrics: GatewayMetrics) -> None:
        self.master = master
        self.metrics = metrics
        self.port = master.address.port

    @property
    def answers(self) -> dict[tuple[str, str], int]:
        """What became of messages."""
        return dict(self.metrics.frontend("smockron").answers)


@asynccontextmanager
async def running(
    domains: str,
    store: str = "memory://",
    clock: Clock = wall_us,
    port: int | None = None,
    host: str = "127.0.0.1",
    deadline: str = "10s",
    more: str = "",
) -> AsyncIterator[Run]:
    """A master of these domains, given in YAML as whatever else is said of it."""
    text = f"""
store: {{ url: "{store}", deadline: {deadline} }}
listeners:
  - smockron: {{ domains: {{ probe: {PROBE_LIMIT}, {domains} }}, {more} }}
    bind: "{host}:{free_pair() if port is None else port}"
"""
    config = check_text(text).config
    assert config is not None, text
    metrics = GatewayMetrics()
    memory = MemoryStore()
    decider = Decider(
        memory, deadline_us=1_000_000, share=None, max_waiting=1, metrics=metrics.store("main")
    )
    ground = context_of(config, decider, memory, metrics)
    master = make_master("smockron", config.listeners[0], ground, clock)
    await master.start()
    try:
        yield Run(master, metrics)
    finally:
        await master.drain(1)


def delays(heard: list[list[bytes]]) -> list[tuple[str, int]]:
    """Whom DELAY_UNTIL messages hold, until when."""
    assert all(frames[1] == b"DELAY_UNTIL" and len(frames) == 4 for frames in heard)
    return [(frames[2].decode(), int(frames[3])) for frames in heard]


async def test_the_burst_passes_and_the_next_is_held() -> None:
    """Exactly the README's example: the last of the burst brings DELAY_UNTIL, for 1 / rate."""
    async with running("default: 1/h burst 3") as run, gatekeeper(run.port, "default") as peer:
        at_ms = now_ms()
        for _ in range(2):
            await peer.report("default", "ACCEPTED", "203.0.113.7", at_ms)
        assert await peer.settled() == []
        await peer.report("default", "ACCEPTED", "203.0.113.7", at_ms, info=b"curl/8")
        (frames,) = await peer.settled()
        assert frames[:3] == [b"default\0", b"DELAY_UNTIL", b"203.0.113.7"]
        assert 0 <= int(frames[3]) - at_ms - HOUR_MS < 5 * SECOND_MS
        assert run.answers["ACCEPTED", "heard"] >= 3
        assert run.metrics.policy("smockron/default").passed == 3


async def test_a_delayed_request_counts_when_it_went_on() -> None:
    """The next may pass 1 / rate after that."""
    async with running("default: 1/h burst 1") as run, gatekeeper(run.port, "default") as peer:
        later_ms = now_ms() + 5 * SECOND_MS
        await peer.report("default", "DELAYED", "k", now_ms(), later_ms)
        assert delays(await peer.settled()) == [("k", later_ms + HOUR_MS)]


async def test_a_rejected_request_counts_for_nothing() -> None:
    """But in the metrics."""
    async with running("default: 1/h burst 1") as run, gatekeeper(run.port, "default") as peer:
        for _ in range(5):
            await peer.report("default", "REJECTED", "k")
        assert await peer.settled() == []
        assert run.metrics.policy("smockron/default").refused == 5


async def test_identifiers_and_domains_are_apart() -> None:
    """And `per all` counts all of a domain's requests together."""
    domains = 'one: 1/h burst 2, two: 1/h burst 2, all: "1/h burst 2 per all"'
    async with running(domains) as run, gatekeeper(run.port, "one", "two", "all") as peer:
        for domain in ("one", "two"):
            for name in ("a", "b"):
                await peer.report(domain, "ACCEPTED", name)
        assert await peer.settled() == []
        await peer.report("all", "ACCEPTED", "a")
        await peer.report("all", "ACCEPTED", "b")
        assert [name for name, _ in delays(await peer.settled())] == ["b"]


async def test_of_several_rules_the_latest_time_wins() -> None:
    """Whichever of them it is."""
    async with (
        running("default: [1/h burst 5, 1/d burst 2]") as run,
        gatekeeper(run.port, "default") as peer,
    ):
        at_ms = now_ms()
        for _ in range(5):
            await peer.report("default", "ACCEPTED", "k", at_ms)
        _, until_ms = delays(await peer.settled())[-1]
        assert 0 <= until_ms - at_ms - 24 * HOUR_MS < 5 * SECOND_MS


async def test_a_bucket_may_be_had_instead() -> None:
    """With `algorithm: token_bucket`; a request that went on without a token is owed for."""
    domains = "default: { limit: 1/h burst 2, algorithm: token_bucket }"
    async with running(domains) as run, gatekeeper(run.port, "default") as peer:
        at_ms = now_ms()
        for _ in range(3):
            await peer.report("default", "ACCEPTED", "k", at_ms)
        _, until_ms = delays(await peer.settled())[-1]
        assert until_ms == at_ms + 2 * HOUR_MS


async def test_a_domain_without_rules_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No client is ever held; a flood gives a bounded number of lines."""
    caplog.set_level("INFO")
    async with running("seen:") as run, gatekeeper(run.port, "seen") as peer:
        await peer.report("seen", "ACCEPTED", "k\n2", info=b"curl/8 \xff")
        assert await peer.settled() == []
        for _ in range(500):
            await peer.report("seen", "ACCEPTED", "flood")
        assert await peer.settled() == []
    lines = [record.getMessage() for record in caplog.records]
    assert "smockron: ACCEPTED 'seen' 'k\\n2' 'curl/8 \\ufffd'" in lines
    assert sum("'flood'" in line for line in lines) <= 3 * LINES_PER_SECOND


async def test_what_is_no_message_is_counted_and_passed_over() -> None:
    """Whatever it is, the next message is served."""
    async with running("default: 1/h burst 1") as run, gatekeeper(run.port, "default") as peer:
        before = run.metrics.frontend("smockron").malformed["accounting"]
        for frames in (
            (b"",),
            (b"default\0", b"ACCEPTED", b"k", b"1"),
            (b"default\0", b"ACCEPTED", b"k", b"soon", b""),
            (b"default\0", b"accepted", b"k", b"1", b""),
            (b"x",) * 50,
        ):
            await peer.send(*frames)
        await peer.send(b"default\0", b"ACCEPTED", b"k", b"%d" % now_ms(), b"")
        assert [name for name, _ in delays(await peer.settled())] == ["k"]
        assert run.metrics.frontend("smockron").malformed["accounting"] == before + 5


async def test_an_unknown_domain_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """The log has it."""
    async with running("default: 1/h burst 1") as run, gatekeeper(run.port, "other") as peer:
        await peer.report("other", "ACCEPTED", "k")
        assert await peer.settled() == []
        assert run.answers["ACCEPTED", "unknown_domain"] == 1
    assert "there is no domain 'other'" in caplog.text


async def test_times_far_ahead_are_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """No client can be held for years; a minute is as far as a request may wait."""
    async with running("default: 1/s burst 1") as run, gatekeeper(run.port, "default") as peer:
        for ahead_ms in (70 * SECOND_MS, 10**12, 10**14):
            await peer.report("default", "DELAYED", "k", now_ms(), now_ms() + ahead_ms)
            await peer.report("default", "ACCEPTED", "k", now_ms() + ahead_ms)
        assert await peer.settled() == []
        assert run.answers["DELAYED", "too_far"] == 3
        assert run.answers["ACCEPTED", "too_far"] == 3
    assert "are all clocks right?" in caplog.text


async def test_what_the_module_for_nginx_cannot_read_is_not_sent() -> None:
    """It is counted."""
    async with running("default: 1/h burst 1") as run, gatekeeper(run.port, "default") as peer:
        await peer.report("default", "ACCEPTED", "k" * 249)
        assert await peer.settled() == []
        assert run.answers["DELAY_UNTIL", "too_long"] == 1
        await peer.report("default", "ACCEPTED", "k" * 248)
        assert len(await peer.settled()) == 1


async def test_gatekeepers_are_counted() -> None:
    """Those that have come, and those that are there: in the end they are sent away."""
    async with AsyncExitStack() as staying:
        async with running("default: 1/h burst 1") as run:
            metrics = run.metrics.frontend("smockron")
            async with gatekeeper(run.port, "default"), gatekeeper(run.port, "default"):
                assert (metrics.connections, metrics.open_connections) == (2, 2)
            await _until(lambda: metrics.open_connections == 0)
            assert metrics.connections == 2
            metrics.refresh()
            assert (metrics.records, bool(metrics.record_bytes)) == (2, True)
            await staying.enter_async_context(gatekeeper(run.port, "default"))
            assert metrics.open_connections == 1
        assert metrics.open_connections == 0


GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\0" + b"NULL".ljust(20, b"\0") + bytes(32)
"""With which a peer of ZMTP 3.0 begins."""


async def _gone(reader: asyncio.StreamReader) -> bool:
    """Wait until the other side has closed a connection."""
    async with asyncio.timeout(20):
        try:
            while await reader.read(1024):
                pass
        except ConnectionError:
            pass
    return True


@pytest.mark.parametrize(("above", "kind", "size"), [(0, b"PUB", 16_385), (1, b"SUB", 1_025)])
async def test_who_sends_a_long_frame_is_disconnected(above: int, kind: bytes, size: int) -> None:
    """At its length: nothing of it is kept. Topics are kept for good, and are shorter."""
    async with running("default: 1/h burst 3") as run:
        reader, writer = await asyncio.open_connection("127.0.0.1", run.port + above)
        ready = b"\x05READY\x0bSocket-Type\0\0\0\x03" + kind
        writer.write(GREETING + bytes((4, len(ready))) + ready)
        async with asyncio.timeout(20):
            # Before that whatever comes ends the handshake.
            await reader.readuntil(b"READY")
        writer.write(b"\2" + (size - 1).to_bytes(8, "big") + bytes(size - 1))
        writer.write(b"\2" + size.to_bytes(8, "big"))
        assert await _gone(reader)
        writer.close()


@pytest.mark.parametrize("above", [0, 1])
async def test_peers_are_bounded_in_number(above: int, caplog: pytest.LogCaptureFixture) -> None:
    """At either port: a new peer is refused, which is logged once, and has room later."""
    async with running("default: 1/h burst 1", more="max_connections: 2") as run:
        metrics = run.metrics.frontend("smockron")
        port = run.port + above
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, _ in idle:
            await reader.readexactly(10)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await _gone(reader)
            writer.close()
        assert metrics.malformed["too_many_connections"] == 3
        assert metrics.open_connections == (0 if above else 2)
        for _, writer in idle:
            writer.close()
        async with gatekeeper(run.port, "default") as peer:
            await peer.report("default", "ACCEPTED", "k")
            assert len(await peer.settled()) == 1
    assert caplog.text.count("gatekeepers are connected, and no more may be") == 1


async def test_both_ports_are_needed() -> None:
    """If the one above is taken, neither is kept."""
    async with running("default: 1/h burst 1") as run:
        with pytest.raises(OSError, match="in use"):
            async with running("default: 1/h burst 1", port=run.port - 1):
                pass
        with socket.socket() as below:
            # Connections of before may linger at that port.
            below.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            below.bind(("127.0.0.1", run.port - 1))


async def test_a_free_pair_of_ports_is_found() -> None:
    """With port 0."""
    async with running("default: 1/h burst 1", port=0) as run:
        assert run.port
        async with gatekeeper(run.port, "default"):
            pass


@pytest.mark.parametrize("host", ["", "localhost"])
async def test_addresses_have_names(host: str) -> None:
    """Every interface, and what the system knows by this name."""
    async with (
        running("default: 1/h burst 1", host=host) as run,
        gatekeeper(run.port, "default") as peer,
    ):
        await peer.report("default", "ACCEPTED", "k")
        assert len(await peer.settled()) == 1


async def test_it_starts_again_at_the_same_ports() -> None:
    """Gatekeepers connect again by themselves."""
    port = free_pair()
    async with running("default: 1/h burst 1", port=port), gatekeeper(port, "default") as peer:
        pass
    async with running("default: 1/h burst 1", port=port), gatekeeper(port, "default") as peer:
        await peer.report("default", "ACCEPTED", "k")
        assert len(await peer.settled()) == 1


async def test_a_store_that_is_away_holds_nobody(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages are lost meanwhile, which is logged once; afterwards they count again."""
    domains = f"default: {SLOW}"
    async with (
        running(domains, redis_server.url) as run,
        gatekeeper(run.port, "default") as peer,
    ):
        redis_server.stop()
        for _ in range(10):
            await peer.report("default", "ACCEPTED", "k")
        await _until(lambda: run.answers.get(("ACCEPTED", "lost"), 0) >= 10)
        redis_server.start()
        # Whoever is heard of now begins anew: Redis has kept nothing.
        await peer.settled()
        for _ in range(3):
            await peer.report("default", "ACCEPTED", "k")
        assert [name for name, _ in delays(await peer.settled())] == ["k"]
    assert caplog.text.count("the store does not record messages") == 1


async def test_a_server_of_a_cluster_that_is_away_concerns_its_own_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counts elsewhere are published as before, and the log reports the losses once."""
    servers = ClusterServers(tmp_path, replicas=False)
    servers.start()
    try:
        async with (
            running("default: 1/h burst 1", servers.url) as run,
            gatekeeper(run.port, "default") as peer,
        ):
            await peer.settled()
            servers.primaries[2].kill()
            names = {f"k{number}" for number in range(30)}
            for name in names:
                await peer.report("default", "ACCEPTED", name)
            heard = None
            while heard is None:
                # What it probes with may be counted on the server that is away: then another does.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        heard = await peer.settled()
            held = {name for name, _ in delays(heard)}
            assert set() < held < names
            assert run.answers["ACCEPTED", "lost"] >= len(names - held)
    finally:
        servers.stop()
    assert caplog.text.count("the store does not record messages") == 1
    assert "the store records messages again" not in caplog.text


async def test_a_frozen_store_holds_nobody(redis_server: RedisServer) -> None:
    """Each batch waits for its deadline and no longer."""
    async with (
        running(f"default: {SLOW}", redis_server.url, deadline="20ms") as run,
        gatekeeper(run.port, "default") as peer,
    ):
        redis_server.freeze()
        for _ in range(10):
            await peer.report("default", "ACCEPTED", "k")
            await asyncio.sleep(0.01)
        await _until(lambda: run.answers.get(("ACCEPTED", "lost"), 0) >= 10)
        redis_server.thaw()
        await peer.settled()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not is_so():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)


async def test_two_masters_on_one_store_are_one(redis_server: RedisServer) -> None:
    """With reports to either of them, both publish the clients that have to wait."""
    async with (
        running("default: 1/h burst 10", redis_server.url) as one,
        running("default: 1/h burst 10", redis_server.url) as two,
        gatekeeper(one.port, "default") as first,
        gatekeeper(two.port, "default") as second,
    ):
        await _listening(redis_server, 2)
        for number in range(9):
            await (first, second)[number % 2].report("default", "ACCEPTED", "k")
        assert await first.settled() == await second.settled() == []
        await first.report("default", "ACCEPTED", "k")
        (found,) = await first.settled()
        assert await _heard(second) == [found]
        # What was told to one by the other makes no rounds: it would come before what is new.
        for _ in range(10):
            await second.report("default", "ACCEPTED", "l")
        (found,) = await second.settled()
        assert await _heard(first) == [found]
        assert one.answers["DELAY_UNTIL", "relayed"] <= two.answers["DELAY_UNTIL", "sent"]
        assert two.answers["DELAY_UNTIL", "relayed"] <= one.answers["DELAY_UNTIL", "sent"]


async def _listening(server: RedisServer, masters: int = 1) -> bytes:
    """The channel, once so many masters listen to it, which they do in the background."""
    with server.client() as client:

        def listeners() -> int:
            return sum(number for _, number in client.pubsub_numsub(*client.pubsub_channels()))

        await _until(lambda: listeners() == masters)
        (channel,) = client.pubsub_channels()
    assert isinstance(channel, bytes)
    return channel


async def _heard(peer: TestGatekeeper) -> list[list[bytes]]:
    """What a gatekeeper hears next."""
    async with asyncio.timeout(15):
        while not (heard := await peer.settled()):
            pass
    return heard


async def test_masters_hear_of_each_other_again(redis_server: RedisServer) -> None:
    """After an outage of their Redis, about which they get no message."""
    async with (
        running(f"default: {SLOW}", redis_server.url) as one,
        running(f"default: {SLOW}", redis_server.url) as two,
        gatekeeper(one.port, "default") as first,
        gatekeeper(two.port, "default") as second,
    ):
        redis_server.restart()
        heard: list[list[bytes]] = []
        async with asyncio.timeout(15):
            for number in itertools.count():
                for _ in range(3):
                    await first.report("default", "ACCEPTED", f"k{number}")
                if heard := await second.settled():
                    break
        assert heard[0][2] in [frames[2] for frames in await first.settled()]


async def test_what_others_say_is_bounded(redis_server: RedisServer) -> None:
    """And read with care: what is no message, of no domain, or of the past, is passed over."""
    async with (
        running("default: 1/h burst 1", redis_server.url) as run,
        # It does not listen to so many.
        gatekeeper(run.port),
    ):
        now_us = wall_us()
        many = [
            DelayUntil("default", f"n{number}", now_us + 60_000_000)
            for number in range(WAITING_MAX + 500)
        ]
        other = b"another."
        channel = await _listening(redis_server)
        told, not_told = ("DELAY_UNTIL", "relayed"), ("DELAY_UNTIL", "not_relayed")
        before = run.answers.get(not_told, 0)
        with redis_server.client() as client:
            for data in (
                *(b"", b"\x01", b"\x02" + other, write_relay(other, many)[:-1]),
                write_relay(other, [DelayUntil("nobody", "k", now_us + 60_000_000)]),
                write_relay(other, [DelayUntil("default", "past", now_us)]),
                write_relay(other, [DelayUntil("default", "first", now_us + 60_000_000)]),
            ):
                client.publish(channel, data)
            # Until then they wait, too.
            await _until(lambda: run.answers.get(told, 0) == 1)
            client.publish(channel, write_relay(other, many))
        await _until(lambda: run.answers.get(told, 0) == 1 + WAITING_MAX)
        assert run.answers[not_told] - before == 500
        assert run.metrics.frontend("smockron").malformed["relay"] == 4


async def test_what_others_say_of_a_far_future_is_not_believed(redis_server: RedisServer) -> None:
    """A wrong clock, or access to the channel, holds no client for longer than a master would."""
    async with (
        running("default: 1/m burst 1", redis_server.url) as run,
        gatekeeper(run.port, "default") as peer,
    ):
        channel = await _listening(redis_server)
        with redis_server.client() as client:
            for far in (2**64 - 1, wall_us() + 365 * 24 * HOUR_MS * 1000):
                far_away = DelayUntil("default", f"k{far}", far)
                client.publish(channel, write_relay(b"another.", [far_away]))
                ((_, until_ms),) = delays(await _heard(peer))
                # What is on the wire is rounded up, lest somebody comes too early.
                assert until_ms <= now_ms() + 1 + 3 * 60 * SECOND_MS


async def test_who_may_not_listen_is_a_master_all_the_same(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """For a user of Redis without channels, the log reports it once."""
    with redis_server.client() as client:
        rules = {"commands": ["+@all"], "keys": ["*"], "passwords": ["+secret"]}
        client.acl_setuser("master", enabled=True, reset_channels=True, **rules)
    url = redis_server.url.replace("://", "://master:secret@")
    async with (
        running("default: 1/h burst 1", url) as run,
        gatekeeper(run.port, "default") as peer,
    ):
        await peer.report("default", "ACCEPTED", "k")
        assert [name for name, _ in delays(await peer.settled())] == ["k"]
        await _until(lambda: "does not permit subscribing to the channel" in caplog.text)
        # Nor may it speak.
        await _until(lambda: run.answers.get(("DELAY_UNTIL", "not_relayed"), 0) >= 1)


# Any program of messages, against the README's rule.


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of this module's own."""
    server = RedisServer(tmp_path_factory.mktemp("redis-smockron"))
    server.start()
    yield server
    server.stop()


BURSTS: Final = (1, 2, 5)
INTERVAL_MS: Final = 60_000

Step = tuple[int, list[tuple[int, str, str, int]]]
"""How much later it is, and what is reported then: domain, status, name, how much ahead."""


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Times are a little late or ahead, and many are the same."""
    message = st.tuples(
        st.integers(0, len(BURSTS) - 1),
        st.sampled_from(["ACCEPTED", "ACCEPTED", "DELAYED", "REJECTED"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from([0, 0, 0, -5_000, 1, 30_000, 60_000]),
    )
    steps = st.tuples(st.integers(0, 3 * INTERVAL_MS), st.lists(message, max_size=8))
    return draw(st.lists(steps, min_size=1, max_size=5))


class Reference:
    """The README's rule on everything that was ever reported."""

    def __init__(self) -> None:
        self._history: dict[tuple[int, str], list[int]] = {}

    def report(self, domain: int, name: str, at_ms: int, now_at_ms: int) -> int | None:
        """When the next request is allowed; None for now."""
        history = self._history.setdefault((domain, name), [])
        history.append(at_ms)
        burst = BURSTS[domain]
        recent = [time for time in history if now_at_ms - time <= burst * INTERVAL_MS]
        return max(now_at_ms, *history) + INTERVAL_MS if len(recent) >= burst else None


async def _follow(
    peer: TestGatekeeper, clock: ManualClock, program: list[Step], prefix: str
) -> tuple[list[dict[Any, int]], list[dict[Any, int]]]:
    """What the master says after each step, and what it should say."""
    reference = Reference()
    said, wanted = [], []
    for later_ms, messages in program:
        clock.advance(us=later_ms * 1000)
        now_at_ms = clock() // 1000
        should: dict[Any, int] = {}
        for domain, status, name, ahead_ms in messages:
            at_ms = now_at_ms + ahead_ms
            delayed_ms = at_ms if status == "DELAYED" else None
            received_ms = now_at_ms if status == "DELAYED" else at_ms
            whose = f"{prefix}{name}"
            await peer.report(f"d{domain}", status, whose, received_ms, delayed_ms)
            if status == "REJECTED":
                continue
            next_ms = reference.report(domain, name, at_ms, now_at_ms)
            if next_ms is not None:
                should[f"d{domain}", whose] = next_ms
        heard = await peer.settled(now_at_ms)
        said.append({(one[0][:-1].decode(), one[2].decode()): int(one[3]) for one in heard})
        wanted.append(should)
    return said, wanted


@pytest.mark.parametrize("is_shared", [False, True])
def test_any_program_of_messages(stored: RedisServer, is_shared: bool) -> None:
    """In memory and in Redis: the last message about each client is what the rule says."""
    store = stored.url if is_shared else "memory://"
    clock = ManualClock(wall_us() // 1000 * 1000)
    domains = ", ".join(f"d{number}: 1/min burst {burst}" for number, burst in enumerate(BURSTS))
    examples = 0

    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    @given(programs())
    def check(program: list[Step]) -> None:
        nonlocal examples
        examples += 1
        said, wanted = runner.run(_follow(peer, clock, program, f"e{examples}-"))
        assert said == wanted

    with asyncio.Runner() as runner:
        master = running(domains, store, clock)
        run = runner.run(master.__aenter__())
        keeper = gatekeeper(run.port, *(f"d{number}" for number in range(len(BURSTS))))
        peer = runner.run(keeper.__aenter__())
        try:
            check()
        finally:
            runner.run(keeper.__aexit__(None, None, None))
            runner.run(master.__aexit__(None, None, None))
