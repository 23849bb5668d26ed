"""Smockron end to end: masters as processes, and gateways that are gatekeepers."""

from __future__ import annotations

from gateway.clock import wall_us
from tests.conftest import StartGateway
from tests.processes import free_pair
from tests.servers import RedisServer
from tests.smockron import PROBE_LIMIT, gatekeeper


def master_config(port: int, domains: str, store: str = "memory://") -> str:
    """A gateway that is a master and nothing else."""
    return f"""
store: {store}
listeners:
  - smockron: {{ domains: {{ probe: {PROBE_LIMIT}, {domains} }} }}
    bind: 127.0.0.1:{port}
"""


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
        heard = await one.settled() + await two.settled()
        assert sorted(frames[2].decode() for frames in heard) == sorted(names)
