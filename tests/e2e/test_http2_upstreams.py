"""Upstreams of HTTP/2 that people have, and clients of both versions; killed and frozen."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.processes import ROOT, Gateway, ServerProcess, free_port
from tests.servers import until

CONFIG = """
upstreams:
  origin:
    targets: {url}
    http2: true
    timeouts: {{ first_byte: 20s }}
routes:
  /**: {{ upstream: origin }}
  /limited: {{ upstream: origin, limit: 5/h per ip }}
"""


def listens(port: int) -> bool:
    """Whether something takes connections."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def start_node(folder: Path, port: int, name: str = "node") -> ServerProcess:
    """The server of HTTP/2 that Node has."""
    argv = ["node", str(ROOT / "tests/node/http2_server.js"), str(port)]
    return ServerProcess(f"{name}-{port}", argv, folder, lambda: listens(port))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of such a server."""
    port = free_port()
    server = start_node(tmp_path_factory.mktemp("node"), port)
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture(scope="module")
def gateway(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway in front of it, with a gateway in front of that."""
    folder = tmp_path_factory.mktemp("gateways")
    near = Gateway.start(CONFIG.format(url=node), folder, listener="http2: true")
    far = Gateway.start(CONFIG.format(url=near.url), folder, listener="http2: true")
    yield far
    far.stop()
    near.stop()


async def test_both_versions_of_clients(gateway: Gateway) -> None:
    """Through two gateways that speak HTTP/2 to each other, bodies of many sizes."""
    sizes = (1, 100, 16_384, 65_535, 65_536, 1_000_000)
    for version in (1, 2):
        async with httpx.AsyncClient(
            http1=version == 1, http2=version == 2, base_url=gateway.url, timeout=30
        ) as client:
            found = await asyncio.gather(*(client.get(f"/{number}") for number in range(50)))
            assert [one.text for one in found] == [f"/{number}" for number in range(50)]
            assert {one.http_version for one in found} == {f"HTTP/{'1.1' if version == 1 else 2}"}
            bodies = [bytes(range(256)) * (size // 256) + b"x" * (size % 256) for size in sizes]
            echoes = await asyncio.gather(*(client.post("/e", content=body) for body in bodies))
            assert [one.content for one in echoes] == bodies
            head = await client.head("/h")
            assert (head.status_code, head.headers["x-method"]) == (200, "HEAD")


def test_nghttp(gateway: Gateway) -> None:
    """nghttp2's own client: a page with many requests at a time, an upload, and trailers."""
    urls = [f"{gateway.url}/{number}" for number in range(20)]
    said = subprocess.run(
        ["nghttp", "--no-verify-peer", "--stat", "--null-out", *urls],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert len(re.findall(r" 200 +\d+ /\d+", said.stdout)) == 20
    said = subprocess.run(
        ["nghttp", "--verbose", "--data", str(ROOT / "README.md"), f"{gateway.url}/post"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.search(r"recv \(stream_id=\d+\) x-count: \d+", said.stdout)


def test_h2load(gateway: Gateway) -> None:
    """Its load generator: some connections with many streams each, and none that fails."""
    said = subprocess.run(
        ["h2load", "--requests=2000", "--clients=8", "--max-concurrent-streams=20", gateway.url],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in said.stdout
    assert "2000 2xx" in said.stdout


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_an_upstream_that_goes_away_under_load(tmp_path: Path, how: str) -> None:
    """No request is answered without having been served, and no POST is served twice."""
    port = free_port()
    server = start_node(tmp_path, port)
    config = CONFIG.format(url=f"http://127.0.0.1:{port}")
    gateway = Gateway.start(config, tmp_path, listener="http2: true")
    answered: list[str] = []
    failed: Counter[int] = Counter()
    numbers = itertools.count()
    is_over = False

    async def ask(client: httpx.AsyncClient) -> None:
        while not is_over:
            name = f"n{next(numbers)}"
            try:
                answer = await client.post("/x", content=name, headers={"x-id": name})
            except httpx.RemoteProtocolError:
                # A response that has begun cannot become an error: it is broken off.
                failed[0] += 1
                continue
            if answer.status_code == 200:
                assert answer.text == name
                answered.append(name)
            else:
                failed[answer.status_code] += 1

    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(
        http1=False, http2=True, base_url=gateway.url, timeout=30, limits=limits
    ) as client:
        tasks = [asyncio.create_task(ask(client)) for _ in range(20)]
        await _more(answered, 200)
        if how == "kill":
            server.process.kill()
            server.process.wait()
            seen = server.lines
            server = start_node(tmp_path, port, "again")
        else:
            seen = []
            server.freeze()
            await asyncio.sleep(0.5)
            server.thaw()
        await _more(answered, 200)
        is_over = True
        await asyncio.gather(*tasks)
    gateway.stop()
    server.stop()
    served = Counter([*seen, *server.lines])
    assert [name for name, count in served.items() if count > 1] == []
    assert set(answered) <= set(served)
    assert set(failed) <= {0, 502}
    assert not failed or how == "kill"


async def _more(answered: list[str], count: int) -> None:
    """Wait for more answers."""
    goal = len(answered) + count
    await until(lambda: len(answered) >= goal, 60)


def test_limits_hold(gateway: Gateway) -> None:
    """Both versions spend the same."""
    with httpx.Client(base_url=gateway.url) as one:
        first = [one.get("/limited").status_code for _ in range(3)]
    with httpx.Client(http1=False, http2=True, base_url=gateway.url) as two:
        second = [two.get("/limited").status_code for _ in range(3)]
    assert (first, second) == ([200] * 3, [200, 200, 429])
