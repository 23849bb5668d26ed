"""Clients of HTTP/2 that people have, and the requests of HTTP/1.1 beside them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.certificates import Authority
from tests.processes import ROOT, Gateway
from tests.wire.origin import OracleOrigin

CONFIG = """
upstreams:
  origin: {{ targets: {url} }}
routes:
  /**: {{ upstream: origin }}
  /own: {{ respond: "own" }}
  /limited: {{ respond: "few", limit: 2/h per ip }}
"""


@pytest.fixture(scope="module")
def origin() -> Iterator[OracleOrigin]:
    """Answers with the target."""
    with OracleOrigin() as origin:
        yield origin


@pytest.fixture(scope="module")
def clear(origin: OracleOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway without TLS."""
    folder = tmp_path_factory.mktemp("clear")
    gateway = Gateway.start(CONFIG.format(url=origin.url), folder, listener="http2: true")
    yield gateway
    gateway.stop()


@pytest.fixture(scope="module")
def secret(
    origin: OracleOrigin, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway with TLS, which offers HTTP/2 by itself."""
    folder = tmp_path_factory.mktemp("secret")
    shown = authority.issue("localhost", "127.0.0.1")
    tls = f"tls: {{ cert: {shown.cert}, key: {shown.key} }}"
    gateway = Gateway.start(CONFIG.format(url=origin.url), folder, listener=tls)
    yield gateway
    gateway.stop()


def curl(*words: str) -> list[str]:
    """What curl says: the version and status of each response."""
    told = ["--silent", "--show-error", "--output", "/dev/null", "--max-time", "30"]
    said = subprocess.run(
        ["curl", *told, "--write-out", "%{http_version} %{http_code}\n", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    return said.stdout.split("\n")[:-1]


def test_curl_with_prior_knowledge(clear: Gateway) -> None:
    """A request, an upload, a refusal, and the same clients without HTTP/2."""
    h2 = "--http2-prior-knowledge"
    assert curl(h2, f"{clear.url}/a") == ["2 200"]
    assert curl(h2, "--data", "x" * 100_000, f"{clear.url}/b") == ["2 200"]
    assert curl(h2, "--head", f"{clear.url}/c") == ["2 200"]
    assert curl(h2, f"{clear.url}/limited") == ["2 200"]
    assert curl(f"{clear.url}/limited") == ["1.1 200"]
    assert curl(h2, f"{clear.url}/limited") == ["2 429"]
    # An upgrade from HTTP/1.1 is not offered (RFC 9113 has removed it).
    assert curl("--http2", f"{clear.url}/d") == ["1.1 200"]


def test_curl_over_tls(secret: Gateway, authority: Authority) -> None:
    """The handshake agrees on HTTP/2; without it, on HTTP/1.1."""
    url = f"https://localhost:{secret.port}"
    trust = ("--cacert", str(authority.file))
    assert curl(*trust, f"{url}/a") == ["2 200"]
    assert curl(*trust, "--http1.1", f"{url}/a") == ["1.1 200"]
    assert curl(*trust, "--no-alpn", f"{url}/a") == ["1.1 200"]
    assert curl(*trust, "-H", "Host: other.test", f"{url}/a") == ["2 421"]
    assert curl(*trust, "--tls-max", "1.2", f"{url}/a") == ["2 200"]


async def test_httpx(secret: Gateway, authority: Authority) -> None:
    """Many requests at a time on one connection, by another implementation of HTTP/2."""
    context = authority.client_context()
    url = f"https://localhost:{secret.port}"
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(
        http2=True, http1=False, verify=context, limits=limits, timeout=30
    ) as client:
        found = await asyncio.gather(
            *(client.get(f"{url}/{number}") for number in range(80)),
            *(client.post(f"{url}/post", content=bytes(number * 1000)) for number in range(20)),
        )
        assert {one.http_version for one in found} == {"HTTP/2"}
        assert [one.text for one in found[:80]] == [f"/{number}" for number in range(80)]
        async with client.stream("GET", f"{url}/own") as answer:
            assert await answer.aread() == b"own"


def test_files_are_uploaded_and_downloaded(clear: Gateway, tmp_path: Path) -> None:
    """A file of megabytes goes up as it is."""
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 20_000)
    h2 = "--http2-prior-knowledge"
    assert curl(h2, "--upload-file", str(file), f"{clear.url}/up") == ["2 200"]


def without_the_library(folder: Path) -> dict[str, str]:
    """The environment of a gateway for which there is no wheel of the library."""
    (folder / "ngh2.py").write_text("raise ImportError\n")
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


def test_without_the_library(origin: OracleOrigin, authority: Authority, tmp_path: Path) -> None:
    """Clients are offered HTTP/1.1, and a line says so; asking for HTTP/2 without TLS fails."""
    shown = authority.issue("localhost")
    tls = f"tls: {{ cert: {shown.cert}, key: {shown.key} }}"
    env = without_the_library(tmp_path)
    gateway = Gateway.start(CONFIG.format(url=origin.url), tmp_path, env, listener=tls)
    trust = ("--cacert", str(authority.file))
    assert curl(*trust, f"https://localhost:{gateway.port}/a") == ["1.1 200"]
    assert gateway.server.stdout.count("Clients are offered HTTP/1.1 only") == 1
    gateway.stop()
    file = tmp_path / "clear.yaml"
    file.write_text(
        'listen: { address: "127.0.0.1:0", http2: true }\nroutes: { /**: { respond: x } }'
    )
    said = subprocess.run(
        [sys.executable, "-m", "gateway", "run", "-c", str(file)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.returncode
    assert "listen.http2: HTTP/2 is not available here" in said.stderr
    assert "pip install ngh2==" in said.stderr
