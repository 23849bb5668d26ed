"""The servers of a Redis Cluster, as they are found."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.base.clock import monotonic_us
from gateway.stores.redis.address import RedisAddress, parse_cluster_url
from gateway.stores.redis.clocked_connection import ClockedConnection
from gateway.stores.redis.connection import FixedPlace, SharedConnection
from gateway.stores.redis.nodes import Nodes
from gateway.stores.redis.pipe import Pipe
from gateway.stores.redis.script import Codec
from tests.servers import ClusterServers, until


async def test_most_of_the_servers_are_not_enough_while_the_others_are_tried(
    tmp_path: Path,
) -> None:
    """A start that waits for the store would begin without a part of the keys."""
    may_be_had = asyncio.Event()

    class SlowPlace(FixedPlace):
        async def check(self, pipe: Pipe) -> None:
            await may_be_had.wait()

    cluster = ClusterServers(tmp_path / "cluster", replicas=False)
    cluster.start()
    last = cluster.primaries[2].port

    def make_lane(address: RedisAddress) -> ClockedConnection:
        place = SlowPlace(address) if address.port == last else FixedPlace(address)
        return ClockedConnection(SharedConnection(place, ()), Codec(""), 0, monotonic_us)

    nodes = Nodes(parse_cluster_url(cluster.url), make_lane)
    nodes.start()
    try:
        await until(lambda: sum(node.lane.connection.is_ready for node in nodes) == 2)
        assert not nodes.is_ready
        may_be_had.set()
        await until(lambda: nodes.is_ready)
        assert sum(node.lane.connection.is_ready for node in nodes) == 3
        cluster.primaries[2].kill()
        await until(lambda: sum(node.lane.connection.is_ready for node in nodes) == 2)
        assert nodes.is_ready
    finally:
        await nodes.aclose()
        cluster.stop()
