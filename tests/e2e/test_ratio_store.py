"""Gateways whose counts are in a ratio server: one limit for all, and what if it is away."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.conftest import StartGateway
from tests.processes import PYTHON_PATH, ServerProcess, free_port
from tests.servers import becomes
from tests.upstreams import Upstream

CONFIG: Final = """
store: {{ url: "ratio://127.0.0.1:{port}", deadline: 20s }}
policies:
  api:
    limit: 40/h per header:X-Key
    algorithm: sliding_window_log
    count_refused: true
    on_store_error: {on_store_error}
routes:
  /**: {{ upstream: {url}, policies: api }}
"""


class Ratio:
    """`sluice ratio` as a process, which may be ended and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: ServerProcess | None = None
        self.port = free_port()

    def start(self) -> None:
        """Serve; counts begin anew."""
        env = {
            "PYTHONPATH": PYTHON_PATH,
            "RATIO_HOST": "127.0.0.1",
            "RATIO_PORT": str(self.port),
            "RATIO_STORAGE": "inmemory://",
            "RATIO_LIMIT": "40/h",
        }
        argv = [sys.executable, "-m", "gateway", "ratio"]
        self._process = ServerProcess("ratio", argv, self._folder, self._listens, env)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop()

    def _listens(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def ratio(tmp_path: Path) -> Iterator[Ratio]:
    """A server that lets 40 an hour through."""
    server = Ratio(tmp_path)
    server.start()
    yield server
    server.stop()


async def _statuses(urls: list[str], times: int, key: str = "a") -> Counter[int]:
    """What becomes of so many requests at once to each address."""

    async def ask(session: aiohttp.ClientSession, url: str) -> int:
        async with session.get(url, headers={"X-Key": key}) as answer:
            return answer.status

    async with aiohttp.ClientSession() as session:
        asked = [ask(session, url) for _ in range(times) for url in urls]
        return Counter(await asyncio.gather(*asked))


async def test_two_gateways_on_one_ratio_server_hold_its_limit(
    start_gateway: StartGateway, nginx_upstream: Upstream, ratio: Ratio
) -> None:
    """Each key gets what the server's limit says, to the last request."""
    config = CONFIG.format(port=ratio.port, url=nginx_upstream.url, on_store_error="closed")
    urls = [f"{start_gateway(config).url}/1k" for _ in range(2)]
    for key in ("a", "b"):
        assert await _statuses(urls, 30, key) == {200: 40, 429: 20}


async def test_a_ratio_server_that_is_away_is_found_again(
    start_gateway: StartGateway, nginx_upstream: Upstream, ratio: Ratio
) -> None:
    """Meanwhile the policy has the word; then the server has."""
    config = CONFIG.format(port=ratio.port, url=nginx_upstream.url, on_store_error="closed")
    url = f"{start_gateway(config).url}/1k"
    assert await _statuses([url], 2) == {200: 2}
    ratio.stop()
    assert await _statuses([url], 5) == {503: 5}
    ratio.start()

    await becomes(lambda: _statuses([url], 1), {200: 1})
