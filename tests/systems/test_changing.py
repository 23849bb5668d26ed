"""Listeners for clients of other systems while the configuration changes: who notices what."""

from __future__ import annotations

import asyncio
import socket

import grpc
import grpc.aio
import pytest

from gateway.base.errors import StartError
from gateway.config.checking.check import check_text
from gateway.config.models.gateway import GatewayConfig
from tests.grpc_engine import port_of
from tests.processes import free_pair, free_port
from tests.proxy.wire import make_gateway
from tests.ratio import PATH, request
from tests.servers import until
from tests.smockron import PROBE_LIMIT, gatekeeper
from tests.systems.throttr.golden import KEY2
from tests.systems.throttr.running import INSERT, TAKE, connected

QUOTA = b"\2\1k"


async def config_of(*listeners: str) -> GatewayConfig:
    """A configuration with these listeners, one line of YAML each."""
    lines = "".join(f"  - {{ {line} }}\n" for line in listeners)
    text = f"admin: off\nlisteners:\n{lines}"
    return await asyncio.to_thread(lambda: check_text(text).config)


async def test_ratio_takes_another_limit_under_an_open_channel() -> None:
    """The calls of a client go on over its connection, and what was used counts."""
    bind = f'bind: "127.0.0.1:{free_port()}"'
    gateway = make_gateway(await config_of(f"{bind}, ratio: 4/h"))
    await gateway.start()
    try:
        (before,) = gateway._frontends
        async with grpc.aio.insecure_channel(str(before.address)) as channel:
            ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
            first = [await ask(request()) for _ in range(5)]
            assert first[:4] == first[:1] * 4
            assert first[4] != first[0]
            await gateway.reload(await config_of(f"{bind}, ratio: 6/h"))
            assert gateway._frontends == [before]
            assert [await ask(request()) for _ in range(3)] == [first[0]] * 2 + [first[4]]
    finally:
        await gateway.stop(0)


async def test_throttr_keeps_its_records_and_its_clients() -> None:
    """Bounds change in place; another version is another server, which the old clients leave."""
    bind = f'bind: "127.0.0.1:{free_port()}"'
    gateway = make_gateway(await config_of(f"{bind}, throttr: {{ version: v5 }}"))
    await gateway.start()
    try:
        (before,) = gateway._frontends
        async with connected(port_of(before.address)) as client:
            assert await client.ask(INSERT, 1) == b"\1"
            more = f"{bind}, throttr: {{ version: v5, max_records: 10 }}"
            await gateway.reload(await config_of(more))
            assert gateway._frontends == [before]
            assert await client.ask(TAKE, 1) == b"\1"
            assert (await client.ask(QUOTA, 6))[:3] == b"\1\xe7\3"
            await gateway.reload(await config_of(f"{bind}, throttr: v2"))
            assert gateway._frontends != [before]
            assert await client.rest() == b""
        async with connected(port_of(gateway._frontends[0].address)) as client:
            unknown = await client.ask(b"\2" + bytes.fromhex(KEY2), 18)
            assert (len(unknown), unknown[0]) == (18, 0)
    finally:
        await gateway.stop(0)


async def test_smockron_takes_another_limit_under_its_gatekeepers() -> None:
    """They stay connected, and hear of the new limit with the next message."""
    pair = f'bind: "127.0.0.1:{free_pair()}"'
    probe = f"probe: {PROBE_LIMIT}"
    gateway = make_gateway(
        await config_of(f"{pair}, smockron: {{ domains: {{ d: 100/h, {probe} }} }}")
    )
    await gateway.start()
    try:
        (before,) = gateway._frontends
        async with gatekeeper(port_of(before.address), "d") as peer:
            await peer.report("d", "ACCEPTED", "k")
            assert not await peer.settled()
            tight = f"{pair}, smockron: {{ domains: {{ d: 1/h, {probe} }} }}"
            await gateway.reload(await config_of(tight))
            assert gateway._frontends == [before]
            for _ in range(3):
                await peer.report("d", "ACCEPTED", "k")
            assert await peer.settled()
    finally:
        await gateway.stop(0)


async def test_front_ends_come_and_go() -> None:
    """One that is not configured any more is gone; a taken address leaves all as it was."""
    first, second = free_port(), free_port()
    throttr = f'bind: "127.0.0.1:{first}", throttr: v5'
    gateway = make_gateway(await config_of(throttr))
    await gateway.start()
    try:
        await gateway.reload(await config_of(throttr, f'bind: "127.0.0.1:{second}", ratio: 4/h'))
        async with connected(first) as client:
            assert await client.ask(INSERT, 1) == b"\1"
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                there = f'bind: "127.0.0.1:{taken.getsockname()[1]}", throttr: v2'
                with pytest.raises(StartError) as caught:
                    await gateway.reload(await config_of(throttr, there))
                assert caught.value.path == "listeners[1].bind"
            assert await client.ask(TAKE, 1) == b"\1"
            await gateway.reload(await config_of(f'bind: "127.0.0.1:{second}", ratio: 4/h'))
            assert await client.rest() == b""
            await until(lambda: not len(gateway._retiring))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", first)
    finally:
        await gateway.stop(0)
