"""Smockron end to end: masters as processes, and gateways that are gatekeepers."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import requests
import zmq

from gateway.base.clock import wall_us
from tests.conftest import StartGateway
from tests.e2e.raw import RawClient
from tests.e2e.signs import metric, request_lines, wait_for_metric
from tests.processes import Gateway, free_pair
from tests.servers import RedisServer, until
from tests.smockron import PROBE_LIMIT, gatekeeper

WAIT_S: Final = 20.0
HOUR_S: Final = 3600
FLOOD: Final = 100_000
FEW_FILES: Final = 200


def master_config(port: int, domains: str, store: str = "memory://") -> str:
    """A gateway that is a master and nothing else."""
    return f"""
store: {{ url: "{store}", deadline: 10s }}
listeners:
  - smockron: {{ domains: {{ probe: {PROBE_LIMIT}, {domains} }} }}
    bind: 127.0.0.1:{port}
"""


def gatekeeper_config(port: int, limit: str, rest: str = "") -> str:
    """A gateway that answers by itself whatever it lets pass."""
    return f"""
store: smockron://127.0.0.1:{port}?rejected=100%
policies:
  api: {{ limit: {limit} per header:x-key, algorithm: paced_history, consistency: eventual }}
routes:
  /**: {{ respond: ok, policies: api }}
{rest}
"""


class Client:
    """Requests of one key after the other, over one connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)

    def get(self, key: str) -> tuple[int, int]:
        """The status, and what `Retry-After` says; 0 for nothing."""
        self._connection.request("GET", "/", headers={"X-Key": key, "User-Agent": "test"})
        response = self._connection.getresponse()
        response.read()
        return response.status, int(response.headers.get("Retry-After", "0"))

    def until_refused(self, key: str) -> int:
        """Ask until a request is refused; what `Retry-After` says of it."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            status, retry_after = self.get(key)
            if status != 200:
                assert status == 503
                return retry_after
        raise AssertionError(f"{key} is never refused")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def client(gateway: Gateway, *, is_warm: bool = True) -> Iterator[Client]:
    """A client of a gatekeeper, to which master and gatekeeper are connected both ways."""
    one = Client(gateway)
    try:
        if is_warm:
            one.until_refused("warm")
        yield one
    finally:
        one.close()


async def test_two_masters_on_one_redis_count_exactly(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """As processes: of many clients nobody is held before the last of the burst, and all then."""
    ports = [free_pair(), free_pair()]
    for port in ports:
        start_gateway(master_config(port, "api: 1/h burst 20", redis_server.url))
    names = [f"client-{number}" for number in range(20)]
    async with gatekeeper(ports[0], "api") as one, gatekeeper(ports[1], "api") as two:
        now_ms = wall_us() // 1000
        for turn in range(19):
            for number, name in enumerate(names):
                peer = (one, two)[(turn + number) % 2]
                await peer.report("api", "ACCEPTED", name, now_ms)
        assert await one.settled() == await two.settled() == []
        for number, name in enumerate(names):
            await (one, two)[number % 2].report("api", "ACCEPTED", name, now_ms)
        for peer in (one, two):
            heard: set[str] = set()
            async with asyncio.timeout(WAIT_S):
                # Of half of them the other master has found it, and says so.
                while len(heard) < len(names):
                    heard |= {frames[2].decode() for frames in await peer.settled()}
            assert heard == set(names)


def test_gatekeepers_hear_what_another_master_found(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """A client that was never seen there is refused by a gatekeeper of the other master."""
    ports = [free_pair(), free_pair()]
    for port in ports:
        start_gateway(master_config(port, "api: 1/h burst 5", redis_server.url))
    here, there = (start_gateway(gatekeeper_config(port, "1/h burst 5")) for port in ports)
    with client(here) as one, client(there) as two:
        deadline = time.monotonic() + WAIT_S
        for number in itertools.count():
            # Another each time: one request of one is far from five.
            one.until_refused(f"k{number}")
            if two.get(f"k{number}")[0] == 503:
                break
            assert time.monotonic() < deadline


def test_the_burst_passes_and_what_is_too_far_is_refused(start_gateway: StartGateway) -> None:
    """503 with `Retry-After`; others are not concerned; the master counts what was refused."""
    port = free_pair()
    master = start_gateway(master_config(port, "api: 1/h burst 5"))
    gateway = start_gateway(gatekeeper_config(port, "1/h burst 5"))
    with client(gateway) as one:
        assert [one.get("k") for _ in range(5)] == [(200, 0)] * 5
        assert HOUR_S - 30 <= one.until_refused("k") <= HOUR_S + 1
        assert one.get("k")[0] == 503
        assert [one.get("other") for _ in range(5)] == [(200, 0)] * 5
    refused = request_lines(gateway, 10)
    assert "refuse" in {line["decision"] for line in refused if line["policy"] == "api"}
    refusals = {"policy": "smockron/api", "decision": "refuse"}
    assert wait_for_metric(master, "sluice_decisions_total", 3, **refusals)


def test_who_is_over_waits_and_each_has_a_turn(start_gateway: StartGateway) -> None:
    """A few at the same time go on one by one, at the rate of the limit."""
    port = free_pair()
    start_gateway(master_config(port, "api: 2/s burst 2"))
    gateway = start_gateway(gatekeeper_config(port, "2/s burst 2"))
    with client(gateway, is_warm=False) as one:
        deadline = time.monotonic() + WAIT_S
        while not metric(gateway, "sluice_decisions_total", decision="delay"):
            assert time.monotonic() < deadline
            assert one.get("k") == (200, 0)
    ends: list[float] = []

    def ask() -> None:
        with client(gateway, is_warm=False) as one:
            assert one.get("k") == (200, 0)
            ends.append(time.monotonic())

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each half a second after the one before, but for what the first of them did not wait.
    assert len(ends) == 5
    assert max(ends) - min(ends) >= 1.9


def test_a_master_that_is_killed_costs_nothing(start_gateway: StartGateway) -> None:
    """Who was held stays held; everybody else passes, until there is a master again."""
    port = free_pair()
    master = start_gateway(master_config(port, "api: 1/h burst 3"))
    gateway = start_gateway(gatekeeper_config(port, "1/h burst 3"))
    with client(gateway) as one:
        one.until_refused("k")
        master.server.process.kill()
        master.server.process.wait()
        assert one.get("k")[0] == 503
        assert [one.get(f"k{number % 3}") for number in range(300)] == [(200, 0)] * 300
        start_gateway(master_config(port, "api: 1/h burst 3"))
        one.until_refused("new")


def test_a_master_that_is_frozen_costs_nothing(start_gateway: StartGateway) -> None:
    """Nobody waits for it; when it goes on it counts what was kept for it."""
    port = free_pair()
    master = start_gateway(master_config(port, "api: 1/h burst 3"))
    gateway = start_gateway(gatekeeper_config(port, "1/h burst 3"))
    with client(gateway) as one:
        master.server.freeze()
        assert [one.get("k") for _ in range(300)] == [(200, 0)] * 300
        master.server.thaw()
        one.until_refused("k")


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xc3\xa9"])
def test_a_value_is_reported_and_held_by_its_own_bytes(
    start_gateway: StartGateway, name: bytes
) -> None:
    """As the module for nginx has them; those that are no UTF-8 as well."""
    port = free_pair()
    context = zmq.Context()
    accounting, control = context.socket(zmq.SUB), context.socket(zmq.XPUB)
    try:
        accounting.subscribe(b"")
        accounting.bind(f"tcp://127.0.0.1:{port}")
        control.bind(f"tcp://127.0.0.1:{port + 1}")
        gateway = start_gateway(gatekeeper_config(port, "1/h burst 3"))
        assert control.recv() == b"\x01api\0"
        with RawClient(gateway.port) as one:
            field = f"X-Key: {name.decode('latin-1')}"
            # What is said before both are connected is lost.
            while not accounting.poll(100):
                assert one.get("/", field).status == 200
            assert accounting.recv_multipart()[2] == name
            until = b"%d" % (wall_us() // 1000 + 60_000)
            control.send_multipart([b"api\0", b"DELAY_UNTIL", name, until])
            deadline = time.monotonic() + WAIT_S
            while one.get("/", field).status != 503:
                assert time.monotonic() < deadline
    finally:
        accounting.close(0)
        control.close(0)
        context.term()


def test_a_master_that_floods_stops_nothing(start_gateway: StartGateway) -> None:
    """Requests are served meanwhile, and afterwards it is heard as before."""
    port = free_pair()
    context = zmq.Context()
    control = context.socket(zmq.XPUB)
    control.bind(f"tcp://127.0.0.1:{port + 1}")
    try:
        gateway = start_gateway(gatekeeper_config(port, "1/h burst 3"))
        assert control.recv() == b"\x01api\0"
        is_over = threading.Event()

        def flood() -> None:
            until = b"%d" % (wall_us() // 1000 + 60_000)
            for number in range(FLOOD):
                control.send_multipart([b"api\0", b"DELAY_UNTIL", b"n%d" % number, until])
            is_over.set()

        thread = threading.Thread(target=flood)
        thread.start()
        with client(gateway, is_warm=False) as one:
            served = 0
            while not is_over.is_set() or served < 100:
                assert one.get("k") == (200, 0)
                served += 1
            thread.join()
            until = b"%d" % (wall_us() // 1000 + 60_000)
            control.send_multipart([b"api\0", b"DELAY_UNTIL", b"k", until])
            assert 0 < one.until_refused("k") <= 60
    finally:
        control.close(0)
        context.term()


def test_gatekeepers_that_flood_stop_nothing(start_gateway: StartGateway) -> None:
    """One that is a master and its own gatekeeper serves requests under a flood of reports."""
    port = free_pair()
    text = master_config(port, "api: 1/h burst 3").replace(
        "memory://", f"smockron://127.0.0.1:{port}"
    )
    gateway = start_gateway(text + gatekeeper_config(port, "1/h burst 3").partition("%")[2])
    context = zmq.Context()
    accounting = context.socket(zmq.PUB)
    accounting.connect(f"tcp://127.0.0.1:{port}")
    try:
        is_over = threading.Event()

        def flood() -> None:
            for number in range(FLOOD):
                now = b"%d" % (wall_us() // 1000)
                accounting.send_multipart([b"api\0", b"ACCEPTED", b"n%d" % number, now, b"", b""])
            is_over.set()

        with client(gateway) as one:
            thread = threading.Thread(target=flood)
            thread.start()
            served = 0
            while not is_over.is_set() or served < 100:
                assert one.get(f"k{served // 2}") == (200, 0)
                served += 1
            thread.join()
            one.until_refused("k")
    finally:
        accounting.close(0)
        context.term()


async def test_idle_peers_do_not_use_up_all_files(tmp_path: Path) -> None:
    """More of them than files: requests are served, and gatekeepers when they are gone."""
    port = free_pair()
    config = master_config(port, "api: 1/h burst 1") + "routes: { /**: { respond: ok } }\n"
    before = ("prlimit", f"--nofile={FEW_FILES}:{FEW_FILES}")
    gateway = Gateway.start(config, tmp_path, before=before)
    try:
        with ExitStack() as crowd:
            for number in range(2 * FEW_FILES):
                idle = crowd.enter_context(socket.socket())
                idle.setblocking(False)
                idle.connect_ex(("127.0.0.1", port + number % 2))
            # While they come, ZeroMQ may have all files for a moment.
            await until(lambda: _has_turned_away(gateway, 2 * FEW_FILES - 2 * (FEW_FILES // 6)))
            for _ in range(10):
                with client(gateway, is_warm=False) as one:
                    assert one.get("k") == (200, 0)
        async with gatekeeper(port, "api") as peer:
            await peer.report("api", "ACCEPTED", "k")
            assert len(await peer.settled()) == 1
    finally:
        gateway.stop()


def _has_turned_away(gateway: Gateway, peers: int) -> bool:
    """Whether so many were; False if there is no file to ask on."""
    with suppress(requests.ConnectionError):
        name = "sluice_listener_malformed_total"
        return metric(gateway, name, kind="too_many_connections") == peers
    return False


def test_each_worker_is_a_gatekeeper(start_gateway: StartGateway) -> None:
    """Both are told of whom one of them reported."""
    port = free_pair()
    start_gateway(master_config(port, "api: 1/h burst 3"))
    gateway = start_gateway(gatekeeper_config(port, "1/h burst 3", "server: { workers: 2 }"))
    for _ in range(4):
        with client(gateway) as one:
            one.until_refused("k")
