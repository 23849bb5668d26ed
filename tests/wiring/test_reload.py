"""A gateway that takes another configuration while it serves: what is kept, and what changes."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import StartError
from gateway.config.models.gateway import GatewayConfig
from gateway.stores.memory.store import MemoryStore
from tests.certificates import Authority
from tests.proxy.test_tls import connect, listen
from tests.proxy.wire import OK, Running, answering, config_of, get, running
from tests.servers import RedisServer, until

OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother"
LIMIT: dict[str, Any] = {"limits": ["5/h burst 5"]}


async def reload(run: Running, folder: Path, upstream: Any = "", **settings: Any) -> None:
    """Reload with the configuration that `running` would make of these arguments."""
    config = config_of(folder, upstream, **settings)
    await run.gateway.reload(GatewayConfig.model_validate(config))


async def test_routes_change_under_an_open_connection(tmp_path: Path) -> None:
    """Its next request goes by the new ones, and the connection stays."""
    async with answering(OK) as one, answering(OTHER) as two, running(tmp_path, one) as run:
        client = await run.client()
        assert (await client.get()).body == b"ok"
        await reload(run, tmp_path, two)
        assert (await client.get()).body == b"other"
        await reload(run, tmp_path, two, routes={"/there": {"upstream": "u"}})
        assert (await client.get()).status == 404
        assert (await client.get("/there")).body == b"other"


async def test_counts_are_kept_when_numbers_change(tmp_path: Path) -> None:
    """Of the memory store too: what was used counts against the new limit."""
    async with answering(OK) as upstream:
        settings: dict[str, Any] = {"route": {"policies": ["p"]}}
        async with running(tmp_path, upstream, policies={"p": LIMIT}, **settings) as run:
            client = await run.client()
            assert [(await client.get()).status for _ in range(6)] == [200] * 5 + [429]
            for limits in (["8/h burst 8"], ["8/h burst 8", "100/h per host"]):
                settings = {"route": {"policies": ["p"]}, "policies": {"p": {"limits": limits}}}
                await reload(run, tmp_path, upstream, **settings)
            statuses = [(await client.get()).status for _ in range(6)]
            assert statuses == [429] * 6
            store = run.gateway._running.store
            assert isinstance(store, MemoryStore)
            settings["route"] = {"policies": ["p"]}
            await reload(run, tmp_path, upstream, store="memory://?max_keys=7", **settings)
            assert run.gateway._running.store is store
            assert (await client.get()).status == 429
            assert "of 7 keys" in repr(store)


async def test_a_cached_refusal_ends_with_its_limit(tmp_path: Path) -> None:
    """A client that sends the same bytes again is let through by the new configuration."""
    async with answering(OK) as upstream:
        policies = {"p": {"limits": ["1/h burst 1"]}}
        route = {"policies": ["p"]}
        async with running(tmp_path, upstream, policies=policies, route=route) as run:
            client = await run.client()
            assert [(await client.get()).status for _ in range(3)] == [200, 429, 429]
            await reload(run, tmp_path, upstream)
            assert (await client.get()).status == 200


async def test_who_waits_keeps_the_turn(tmp_path: Path) -> None:
    """And goes where the route led when the request came, whatever routes there are now."""
    policies = {"p": {"limits": ["10/s burst 1"], "queue": {"max": 10, "max_wait": "10s"}}}
    async with (
        answering(OK) as one,
        answering(OTHER) as two,
        running(tmp_path, one, policies=policies, route={"policies": ["p"]}) as run,
    ):
        clients = [await run.client() for _ in range(4)]
        asking = [asyncio.ensure_future(client.get()) for client in clients]
        await until(lambda: len(run.gateway._running.decider.waiting) == 3)
        await reload(run, tmp_path, two, routes={"/else": {"upstream": "u"}})
        assert [answer.body for answer in await asyncio.gather(*asking)] == [b"ok"] * 4
        assert (await clients[0].get("/else")).body == b"other"


async def test_upstreams_keep_their_connections(tmp_path: Path) -> None:
    """An upstream that has not changed is the same object; one that has is replaced."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        assert (await client.get()).status == 200
        before = run.upstream()
        await reload(run, tmp_path, upstream, route={"max_body": "1KiB"})
        assert run.upstream() is before
        await client.get()
        assert len(upstream.peers) == 1
        await reload(run, tmp_path, upstream, u={"max_connections": 7})
        assert run.upstream() is not before
        assert (await client.get()).status == 200
        await until(lambda: not before.pools[0]._open)


async def test_a_request_in_flight_ends_at_its_upstream(tmp_path: Path) -> None:
    """Though that is no longer part of the configuration; its connection is then closed."""
    async with (
        answering(OK, pause=0.3) as slow,
        answering(OTHER) as other,
        running(tmp_path, slow) as run,
    ):
        client = await run.client()
        before = run.upstream()
        asking = asyncio.ensure_future(client.get())
        await until(lambda: bool(slow.requests))
        await reload(run, tmp_path, other)
        assert (await asking).body == b"ok"
        assert (await client.get()).body == b"other"
        await until(lambda: not before.pools[0]._open)


async def test_listeners_come_and_go(tmp_path: Path) -> None:
    """The one that stays keeps its port; clients of the one that goes are let go when idle."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        stays = await run.client()
        (first,) = run.gateway.addresses
        path = str(tmp_path / "s")
        await reload(run, tmp_path, upstream, listen=["127.0.0.1:0", f"unix:{path}"])
        assert run.gateway.addresses == [first]
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(get())
        assert (await reader.readline()).endswith(b"200 OK\r\n")
        await reload(run, tmp_path, upstream)
        with pytest.raises(FileNotFoundError):
            await asyncio.open_unix_connection(path)
        async with asyncio.timeout(20):
            await reader.read()
        writer.close()
        assert (await stays.get()).status == 200


async def test_a_listener_changes_its_kind(tmp_path: Path) -> None:
    """From plain to one with PROXY headers and back, on the same port, refusing nobody."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        (address,) = run.gateway.addresses
        before = await run.client()
        assert (await before.get()).status == 200
        proxied = {"address": "127.0.0.1:0", "proxy_protocol": True}
        await reload(run, tmp_path, upstream, listen=[proxied], trusted_proxies=["127.0.0.1"])
        assert run.gateway.addresses == [address]
        assert await before.is_closed()
        after = await run.client()
        assert (await after.ask(b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + get())).status == 200
        await reload(run, tmp_path, upstream)
        assert (await run.ask(get())).status == 200


async def test_what_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """An address that is taken, a store that does not exist: the old configuration serves on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        async with answering(OK) as upstream, running(tmp_path, upstream) as run:
            client = await run.client()
            assert (await client.get()).status == 200
            config = run.gateway.config
            with pytest.raises(StartError, match="in use") as caught:
                await reload(run, tmp_path, upstream, listen=["127.0.0.1:0", there])
            assert caught.value.path == "listen[1]"
            with pytest.raises(StartError) as caught:
                log = {"output": str(tmp_path / "no" / "log"), "access": False}
                await reload(run, tmp_path, upstream, log=log)
            assert caught.value.path == "log.output"
            with pytest.raises(StartError) as caught:
                await reload(run, tmp_path, upstream, server={"workers": 2})
            assert caught.value.path == "server.workers"
            assert run.gateway.config is config
            assert (await client.get()).status == 200


async def test_from_memory_to_redis_and_back(tmp_path: Path, redis_server: RedisServer) -> None:
    """The store changes for the next request; who waits still waits in the old one."""
    policies = {"p": {"limits": ["20/s burst 1"], "queue": {"max": 10, "max_wait": "10s"}}}
    route = {"policies": ["p"]}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies=policies, route=route) as run,
    ):
        before = run.gateway._running.decider
        client, late = await run.client(), await run.client()
        assert (await client.get()).status == 200
        asking = asyncio.ensure_future(late.get())
        await until(lambda: len(before.waiting) == 1)
        settings: dict[str, Any] = {"policies": policies, "store": redis_server.url}
        await reload(run, tmp_path, upstream, route={"policies": ["p"]}, **settings)
        assert run.gateway._running.decider is not before
        assert (await client.get()).status == 200
        assert (await asking).status == 200
        settings["store"] = "memory://"
        await reload(run, tmp_path, upstream, route={"policies": ["p"]}, **settings)
        assert (await client.get()).status == 200


async def test_limits_of_clients_change(tmp_path: Path) -> None:
    """Sizes, times and numbers hold for connections that are open already."""
    async with answering(OK) as upstream, running(tmp_path, upstream, "refused") as run:
        client = await run.client()
        big = get().replace(b"\r\n\r\n", b"\r\nx: " + b"a" * 3000 + b"\r\n\r\n")
        assert (await client.ask(big)).status == 200
        server = {"max_header_size": "1KiB", "max_connections_per_ip": 1}
        await reload(run, tmp_path, upstream, server=server)
        assert (await run.ask(get())).status == 503
        assert (await client.ask(big)).status == 431


async def test_a_hundred_reloads_leave_nothing_behind(tmp_path: Path) -> None:
    """Neither objects nor sockets, while a client asks all the time."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        statuses: list[int] = []
        is_over = False

        async def ask() -> None:
            client = await run.client()
            while not is_over:
                statuses.append((await client.get()).status)

        asking = asyncio.ensure_future(ask())
        policies: dict[str, Any] = {"p": LIMIT}
        for number in range(100):
            limits = {"limits": [f"{100_000 + number}/h burst 100000"]}
            policies = {"p": limits, f"q{number % 3}": LIMIT}
            listen = ["127.0.0.1:0", f"unix:{tmp_path}/s{number % 2}"]
            u = {"max_connections": 5 + number % 2}
            route = {"policies": ["p"]}
            await reload(
                run, tmp_path, upstream, u=u, policies=policies, route=route, listen=listen
            )
        is_over = True
        await asking
        assert set(statuses) == {200}
        assert len(statuses) > 100
        assert len(run.gateway._listeners._groups) == 2
        assert sorted(run.gateway.metrics.policies) == ["p", "q0"]
        await until(lambda: not len(run.gateway._retiring))
        assert await asyncio.to_thread(os.listdir, tmp_path) in (["log", "s1"], ["s1", "log"])


async def test_targets_that_stay_keep_their_connections_and_health(tmp_path: Path) -> None:
    """When others join them or leave; a target that failed is left out still."""
    gone = "http://127.0.0.1:1"
    async with answering(OK) as one, answering(OK) as two:
        u: dict[str, Any] = {"targets": [one.url, gone], "eject": {"failures": 1}}
        u["retry"] = {"tries": 2, "when": ["connect"]}
        async with running(tmp_path, "", "left out", u=u) as run:
            client = await run.client()
            for _ in range(4):
                assert (await client.get()).status == 200
            pools = {pool.name: pool for pool in run.upstream().pools}
            others = {**u, "targets": [gone, two.url, one.url], "balance": "least_requests"}
            await reload(run, tmp_path, u=others)
            after = run.upstream()
            assert {pool.name: pool for pool in after.pools if pool.name in pools} == pools
            for _ in range(4):
                assert (await client.get()).status == 200
            assert len(one.peers) == 1
            assert after.metrics.retries["connect"] == 1
            assert [target.is_ejected for target in after.metrics.targets.values()].count(True) == 1
            await reload(run, tmp_path, u={"targets": two.url})
            assert (await client.get()).status == 200
            assert not run.upstream().metrics.targets


async def test_certificates_and_client_rules_change(tmp_path: Path, authority: Authority) -> None:
    """Whoever came in without a certificate is let go when one is required."""
    first, second = authority.issue("a.test"), authority.issue("a.test", "b.test")
    async with answering(OK) as upstream, running(tmp_path, upstream, listen=listen(first)) as run:
        client = await connect(run, authority.client_context())
        assert (await client.get()).status == 200
        await reload(run, tmp_path, upstream, listen=listen(second))
        other = await connect(run, authority.client_context(), "b.test")
        assert (await other.get()).status == 200
        rules = {"client_ca": str(authority.file), "client_certificates": "required"}
        await reload(run, tmp_path, upstream, listen=listen(second, **rules))
        assert await client.is_closed()
        assert await other.is_closed()
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await (await connect(run, authority.client_context())).get()
        await reload(run, tmp_path, upstream)
        assert (await run.ask(get())).status == 200


class _Handshake:
    """A client that completes its TLS handshake when the test says so."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="a.test")

    async def begin(self, port: int) -> None:
        """Send the first message, and read the answer to it."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.do_handshake()
        await self._send()
        self._incoming.write(await self._reader.read(1 << 16))

    async def complete(self) -> None:
        """Send the rest."""
        self._tls.do_handshake()
        await self._send()

    async def ask(self, request: bytes) -> bytes:
        """Send a request; returns all that is sent until TLS ends."""
        if request:
            self._tls.write(request)
        await self._send()
        found = b""
        while True:
            try:
                piece = self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                data = await self._reader.read(1 << 16)
                assert data, "the connection has ended without the end of TLS"
                self._incoming.write(data)
                continue
            if not piece:
                self._writer.close()
                return found
            found += piece

    async def _send(self) -> None:
        self._writer.write(self._outgoing.read())
        await self._writer.drain()


async def test_a_handshake_under_way_does_not_outlive_the_rules(
    tmp_path: Path, authority: Authority
) -> None:
    """The connection ends with its first request, whether rules have changed or are gone."""
    shown = authority.issue("a.test")
    rules = {"client_ca": str(authority.file), "client_certificates": "required"}
    for after in ([listen(shown, **rules)], [{"address": "127.0.0.1:0"}], [{"address": ":0"}]):
        async with (
            answering(OK) as upstream,
            running(tmp_path, upstream, listen=listen(shown)) as run,
        ):
            client, late = (_Handshake(authority.client_context()) for _ in range(2))
            for one in (client, late):
                await one.begin(run.gateway.addresses[0].port)
            await reload(run, tmp_path, upstream, listen=after)
            for one in (client, late):
                await one.complete()
            async with asyncio.timeout(20):
                answer = await client.ask(get())
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert b"Connection: close\r\n" in answer
                # Without a request, it is closed as soon as an idle one.
                assert await late.ask(b"") == b""


async def test_a_proxy_that_is_no_longer_trusted(tmp_path: Path) -> None:
    """Its open connections may not name clients any more; nor does a new one have to reconnect."""
    limits = {"policies": {"p": {"limits": ["1/h per ip"]}}}
    trusting: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"], **limits}
    route = {"policies": ["p"]}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, route=route, **trusting) as run,
    ):
        client = await run.client()
        for number in range(2):
            named = get("/", f"X-Forwarded-For: 10.0.0.{number}")
            assert (await client.ask(named)).status == 200
        await reload(run, tmp_path, upstream, route={"policies": ["p"]}, **limits)
        answers = [await client.ask(get("/", f"X-Forwarded-For: 10.0.1.{n}")) for n in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        await reload(run, tmp_path, upstream, route={"policies": ["p"]}, **trusting)
        assert (await client.ask(get("/", "X-Forwarded-For: 10.0.1.5"))).status == 200
