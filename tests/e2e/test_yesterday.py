"""A gateway of the release before and one of today on one store: they count as one."""

from __future__ import annotations

import asyncio
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.conftest import StartGateway
from tests.e2e.load import ask
from tests.e2e.signs import wait_for_metric
from tests.mariadb import MariaDB
from tests.servers import RedisServer
from tests.upstreams import Upstream

ARCHIVE: Final = Path(__file__).with_name("yesterday.tar.xz")
"""The package of that release; `scripts/yesterday.sh` makes it."""
LIMIT: Final = 60
EACH: Final = 50
"""Requests to each gateway, for each key: more than the limit in all."""
CONFIG: Final = """
store: {{ url: "{store}", deadline: 20s }}
policies:
  bucket: {{ limit: "{limit}/h burst {limit} per header:X-Key" }}
  log: {{ limit: "{limit}/h per header:X-Key", algorithm: sliding_window_log }}
  counter: {{ limit: "{limit}/30d per header:X-Key", algorithm: sliding_window_counter }}
  window: {{ limit: "{limit}/30d per header:X-Key", algorithm: fixed_window }}
  two: {{ limits: ["{limit}/h burst {limit} per header:X-Key", "1000000/h per all"] }}
  leased:
    limit: "{limit}/h burst {limit} per header:X-Key"
    consistency: leased
routes:
  /bucket/**: {{ upstream: {url}, policies: bucket, strip_prefix: /bucket }}
  /log/**: {{ upstream: {url}, policies: log, strip_prefix: /log }}
  /counter/**: {{ upstream: {url}, policies: counter, strip_prefix: /counter }}
  /window/**: {{ upstream: {url}, policies: window, strip_prefix: /window }}
  /two/**: {{ upstream: {url}, policies: two, strip_prefix: /two }}
  /leased/**: {{ upstream: {url}, policies: leased, strip_prefix: /leased }}
"""
EXACT: Final = ("bucket", "log", "counter", "window", "two")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the release before."""
    folder = tmp_path_factory.mktemp("yesterday")
    with tarfile.open(ARCHIVE) as archive:
        # It is our own; Python 3.11 before 3.11.4 does not know filters, and 3.12 asks for one.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)  # noqa: S202
    return folder


@pytest.fixture(params=["redis", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store that both share."""
    server: RedisServer | MariaDB
    server = RedisServer(tmp_path) if request.param == "redis" else MariaDB(tmp_path / "mariadb")
    server.start()
    yield server.url
    server.stop()


async def test_they_keep_one_limit_together(
    start_gateway: StartGateway, nginx_upstream: Upstream, release: Path, store: str
) -> None:
    """No request more passes than the limit allows, and none is counted that did not pass."""
    config = CONFIG.format(store=store, url=nginx_upstream.url, limit=LIMIT)
    # The one of yesterday first: it makes the tables of MySQL.
    old = start_gateway(config, {"PYTHONPATH": str(release)})
    assert wait_for_metric(old, "sluice_store_ready", 1)
    new = start_gateway(config)
    assert wait_for_metric(new, "sluice_store_ready", 1)
    async with aiohttp.ClientSession() as session:

        async def statuses(path: str, key: str) -> Counter[int]:
            urls = [f"{gateway.url}/{path}/1k" for gateway in (old, new)]
            asked = (ask(session, url, key) for _ in range(EACH) for url in urls)
            return Counter(sample.status for sample in await asyncio.gather(*asked))

        for name in EXACT:
            for key in ("a", "b"):
                found = await statuses(name, f"{name}-{key}")
                assert found == {200: LIMIT, 429: 2 * EACH - LIMIT}, name
        # What one of them holds on lease is not there for the other until it comes back.
        found = await statuses("leased", "leased")
        assert found[200] <= LIMIT
        assert found[200] + found[429] == 2 * EACH


async def test_a_queue_of_both_has_one_order(
    start_gateway: StartGateway, nginx_upstream: Upstream, release: Path, redis_server: RedisServer
) -> None:
    """Turns are given once each: so many requests take as long as the rate says, and no less."""
    config = f"""
store: {{ url: "{redis_server.url}", deadline: 20s }}
policies:
  queue: {{ limit: "20/s burst 1 per header:X-Key", queue: {{ max: 100, max_wait: 60s }} }}
routes:
  /**: {{ upstream: {nginx_upstream.url}, policies: queue }}
"""
    gateways = [start_gateway(config, {"PYTHONPATH": str(release)}), start_gateway(config)]
    assert all(wait_for_metric(gateway, "sluice_store_ready", 1) for gateway in gateways)
    async with aiohttp.ClientSession() as session:
        asked = (ask(session, f"{gateway.url}/1k", "k") for _ in range(15) for gateway in gateways)
        samples = await asyncio.gather(*asked)
    assert {sample.status for sample in samples} == {200}
    ended = sorted(sample.ended for sample in samples)
    assert ended[-1] - min(sample.started for sample in samples) >= 29 / 20
