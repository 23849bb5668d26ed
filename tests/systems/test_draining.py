"""What listeners for other systems' clients have under way when the gateway ends."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from gateway.config.checking.check import check_text
from gateway.stores.opening import find_store
from gateway.systems.ratio.listener import RatioFrontend
from gateway.systems.smockron.listener import SmockronMaster
from gateway.systems.throttr.listener import ThrottrFrontend
from tests.grpc_engine import port_of
from tests.processes import free_pair
from tests.proxy.wire import make_gateway
from tests.ratio import PATH, request
from tests.servers import RedisServer, until
from tests.smockron import PROBE_LIMIT, gatekeeper
from tests.systems.throttr.running import INSERT, TAKE, connected

CONFIG = """
store: {{ url: "{url}", deadline: 30s }}
admin: off
listeners:
  - {{ bind: "127.0.0.1:0", ratio: 100/m }}
  - {{ bind: "127.0.0.1:0", throttr: v5 }}
  - {{ bind: "127.0.0.1:{pair}", smockron: {{ domains: {{ default: 1/h, probe: {probe} }} }} }}
"""


async def test_it_is_counted_in_the_log_and_so_is_what_is_cut_off(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls of gRPC, requests of Throttr and messages of Smockron."""
    text = CONFIG.format(url=redis_server.url, pair=free_pair(), probe=PROBE_LIMIT)
    await asyncio.to_thread(find_store, redis_server.url)
    config = await asyncio.to_thread(lambda: check_text(text).config)
    gateway = make_gateway(config)
    await gateway.start()
    ratio, throttr, smockron = gateway._frontends
    assert isinstance(ratio, RatioFrontend)
    assert isinstance(throttr, ThrottrFrontend)
    assert isinstance(smockron, SmockronMaster)
    async with (
        grpc.aio.insecure_channel(str(ratio.address)) as channel,
        connected(port_of(throttr.address)) as client,
        gatekeeper(smockron.address.port, "default") as peer,
    ):
        assert await client.ask(INSERT, 1) == b"\x01"
        redis_server.freeze()
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        call = asyncio.ensure_future(method(request()))
        await client.say(TAKE * 3)
        await peer.report("default", "ACCEPTED", "k")
        await peer.report("default", "ACCEPTED", "k")
        await until(lambda: (ratio.under_way, throttr.under_way, smockron.under_way) == (1, 3, 2))
        ending = asyncio.ensure_future(gateway.stop(0.1))
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        assert await client.rest() == b""
        # What is asked already is waited for, though nobody wants the answer.
        redis_server.thaw()
        await ending
    assert "draining: 6 requests in flight" in caplog.text
    assert "6 requests took too long and were cut off" in caplog.text
