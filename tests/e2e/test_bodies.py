"""Bodies of every size come through unchanged, both ways, with every client, in little memory."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.memory import MIB, peak_mib, reset_peak
from tests.e2e.raw import RawClient, RawConnection, RawUpstream, header_values
from tests.processes import Gateway
from tests.upstreams import FILE_SIZES, content

SIZES: Final = sorted(FILE_SIZES, key=lambda name: FILE_SIZES[name])


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _curl(*arguments: str, stdin: Path = Path(os.devnull)) -> bytes:
    with stdin.open("rb") as source:
        return subprocess.run(
            ["curl", "--silent", "--show-error", "--fail", *arguments],
            check=True,
            stdin=source,
            stdout=subprocess.PIPE,
            timeout=60,
        ).stdout


async def _get_with_curl(url: str) -> bytes:
    return _curl(url)


async def _get_with_requests(url: str) -> bytes:
    answer = await asyncio.to_thread(requests.get, url, timeout=60)
    answer.raise_for_status()
    return answer.content


async def _get_with_aiohttp(url: str) -> bytes:
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(url) as answer:
        return await answer.read()


Get = Callable[[str], Awaitable[bytes]]
DOWNLOADERS: Final[dict[str, Get]] = {
    "curl": _get_with_curl,
    "requests": _get_with_requests,
    "aiohttp": _get_with_aiohttp,
}


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 100_000):
        yield data[start : start + 100_000]


@pytest.mark.parametrize("client", DOWNLOADERS)
@pytest.mark.parametrize("name", SIZES)
async def test_a_file_arrives_byte_by_byte_as_it_is(
    files_gateway: Gateway, name: str, client: str
) -> None:
    """Files of nginx from nothing to 100 MB have the same hash behind the gateway."""
    body = await DOWNLOADERS[client](f"{files_gateway.url}/{name}")
    assert len(body) == FILE_SIZES[name]
    assert _sha256(body) == _sha256(content(name))


def _uploads() -> Iterator[tuple[str, str, bool]]:
    """Every client with every size, framed both ways; the largest once for each client."""
    for client in DOWNLOADERS:
        for name in SIZES:
            framings = [client == "requests"] if name == "100m" else [False, True]
            yield from ((client, name, is_chunked) for is_chunked in framings)


def _upload_with_curl(url: str, data: bytes, *, is_chunked: bool, folder: Path) -> bytes:
    path = folder / "body"
    path.write_bytes(data)
    if not is_chunked:
        return _curl("--request", "POST", "--upload-file", str(path), url)
    # From its standard input curl cannot know how much there will be.
    return _curl("--request", "POST", "--upload-file", "-", url, stdin=path)


async def _upload_with_aiohttp(url: str, data: bytes, *, is_chunked: bool) -> bytes:
    source: Any = _pieces_later(data) if is_chunked else io.BytesIO(data)
    async with aiohttp.ClientSession() as session, session.post(url, data=source) as answer:
        return await answer.read()


@pytest.mark.parametrize(("client", "name", "is_chunked"), list(_uploads()))
async def test_an_upload_arrives_byte_by_byte_as_it_is(
    files_gateway: Gateway, client: str, name: str, is_chunked: bool, tmp_path: Path
) -> None:
    """The application sees the hash of what was sent, with a length or in chunks."""
    data = content(name)
    url = f"{files_gateway.url}/hash"
    if client == "curl":
        answer = _upload_with_curl(url, data, is_chunked=is_chunked, folder=tmp_path)
    elif client == "requests":
        body = _pieces(data) if is_chunked else data
        answer = (await asyncio.to_thread(requests.post, url, data=body, timeout=60)).content
    else:
        answer = await _upload_with_aiohttp(url, data, is_chunked=is_chunked)
    assert json.loads(answer) == {"size": len(data), "sha256": _sha256(data)}


async def _pieces_later(data: bytes) -> Any:
    for piece in _pieces(data):
        yield piece


@pytest.mark.parametrize("name", SIZES)
def test_a_head_tells_the_length_and_sends_nothing(files_gateway: Gateway, name: str) -> None:
    """HEAD has the length of GET, no body, and the connection goes on."""
    with RawClient(files_gateway.port) as client:
        for _ in range(2):
            answer = client.get(f"/{name}", method="HEAD")
            assert answer.status == 200
            assert answer.field("Content-Length") == str(FILE_SIZES[name])
            assert answer.body == b""


def test_ranges_are_the_upstreams_affair(files_gateway: Gateway) -> None:
    """A range is answered with 206 and just those bytes; one out of reach with 416."""
    url = f"{files_gateway.url}/1m"
    for first, last in [(0, 0), (65_535, 65_536), (1_000_000, MIB - 1)]:
        answer = requests.get(url, headers={"Range": f"bytes={first}-{last}"}, timeout=20)
        assert answer.status_code == 206
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{MIB}"
        assert answer.content == content("1m")[first : last + 1]
    refused = requests.get(url, headers={"Range": f"bytes={MIB}-"}, timeout=20)
    assert refused.status_code == 416


def test_what_a_client_has_already_is_not_sent_again(files_gateway: Gateway) -> None:
    """If-None-Match brings 304 without a body, and the connection goes on."""
    with RawClient(files_gateway.port) as client:
        etag = client.get("/1k").field("ETag")
        for _ in range(2):
            answer = client.get("/1k", f"If-None-Match: {etag}")
            assert (answer.status, answer.body) == (304, b"")
            assert answer.field("ETag") == etag


def test_no_content_is_no_content(files_gateway: Gateway) -> None:
    """204 has neither body nor length, and the connection goes on."""
    with RawClient(files_gateway.port) as client:
        for _ in range(2):
            answer = client.get("/status/204")
            assert (answer.status, answer.body) == (204, b"")
            assert not answer.all("Content-Length")
            assert not answer.all("Transfer-Encoding")


def _serve_zeros(connection: RawConnection) -> None:
    """Send, or take, as many zeros as the request's target or length says."""
    while head := connection.read_head():
        method, target, _ = head.split(b" ", 2)
        if method == b"GET":
            size = int(target[1:])
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size // MIB):
                connection.send(bytes(MIB))
        else:
            size = connection.discard_body(int(header_values(head, "Content-Length")[0]))
            text = b"%d" % size
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_gibibyte_flows_through_in_little_memory(
    start_gateway: StartGateway, direction: str, tmp_path: Path
) -> None:
    """While 1 GiB streams, the gateway's memory peaks less than 20 MiB higher than before."""
    zeros = tmp_path / "zeros"
    with zeros.open("wb") as file:
        file.truncate(1024 * MIB)
    with RawUpstream(_serve_zeros) as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url}, limit: 1000/s }}\n")
        pid = gateway.server.pid
        # What serving one request needs is there before the measurement begins.
        assert _curl(f"{gateway.url}/{MIB}") == bytes(MIB)
        reset_peak(pid)
        before = peak_mib(pid)
        if direction == "down":
            url = f"{gateway.url}/{1024 * MIB}"
            size = _curl("--output", os.devnull, "--write-out", "%{size_download}", url)
        else:
            size = _curl("--upload-file", str(zeros), f"{gateway.url}/")
        assert int(size) == 1024 * MIB
        assert peak_mib(pid) - before < 20
