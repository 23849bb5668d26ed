"""What is passed on of a message, word for word, and what the gateway adds or takes away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, RecordingUpstream, get, header_values
from tests.processes import Gateway
from tests.upstreams import content

PLAIN: Final = "routes:\n  /**: {{ upstream: {url} }}\n"


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """An upstream that remembers what it was asked."""
    with RecordingUpstream() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    upstream: RecordingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway before that upstream, which trusts 127.0.0.9."""
    trust = "trusted_proxies: [127.0.0.9/32]\n"
    folder = tmp_path_factory.mktemp("gateway")
    running = Gateway.start(trust + PLAIN.format(url=upstream.url), folder)
    yield running
    running.stop()


def test_fields_keep_their_order_case_repetition_and_bytes(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """What the client wrote is what the upstream reads, down to letters and bytes."""
    sent = [
        b"Host: gateway.test",
        b"X-ZULU: 1",
        b"accept: */*",
        b"X-Twice: a",
        b"aLpHa: \xe4\xf6\xfc latin",
        b"X-Twice: b",
        b"x-twice: a",
        b"Cookie: a=1; b=2",
    ]
    with RawClient(gateway.port) as client:
        client.send(b"GET /a%2Fb/~c;d=1?x=%20&y HTTP/1.1\r\n" + b"\r\n".join(sent) + b"\r\n\r\n")
        assert client.read().status == 200
    lines = upstream.heads[-1].removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert lines[0] == b"GET /a%2Fb/~c;d=1?x=%20&y HTTP/1.1"
    assert lines[1 : len(sent) + 1] == sent


def test_fields_of_an_answer_keep_their_order_case_repetition_and_bytes(
    start_gateway: StartGateway,
) -> None:
    """What the upstream wrote is what the client reads; the reason phrase too."""
    fields = [
        b"Set-Cookie: b=1; Path=/",
        b"x-lower: 1",
        b"X-UPPER: \xfc",
        b"Set-Cookie: a=2",
        b"Server: something else",
    ]
    head = b"HTTP/1.1 299 Quite Fine\r\n" + b"\r\n".join(fields)
    with RecordingUpstream(head + b"\r\nContent-Length: 0\r\n\r\n") as upstream:
        gateway = start_gateway(PLAIN.format(url=upstream.url))
        with RawClient(gateway.port) as client:
            client.request("/")
            raw = client.sock.recv(1 << 16)
    lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 299 Quite Fine"
    assert [line for line in lines if line in fields] == fields


def test_what_concerns_one_connection_stays_there(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """Hop-by-hop fields, and those that Connection names, reach no upstream."""
    answer = get(
        gateway.port,
        "/",
        "Connection: keep-alive, X-Mine",
        "X-Mine: secret",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic secret",
        "TE: deflate",
        "X-Other: kept",
    )
    assert answer.status == 200
    head = upstream.heads[-1]
    assert header_values(head, "X-Other") == ["kept"]
    for name in (
        *("X-Mine", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "TE"),
        "Connection",
    ):
        assert header_values(head, name) == [], name


def test_hop_by_hop_fields_of_an_answer_reach_no_client(start_gateway: StartGateway) -> None:
    """Keep-Alive, and what the upstream's Connection names, is not passed on."""
    answer = (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=9\r\n"
        b"X-Hop: 1\r\nX-End: 1\r\nContent-Length: 2\r\n\r\nok"
    )
    with RecordingUpstream(answer) as upstream:
        gateway = start_gateway(PLAIN.format(url=upstream.url))
        found = get(gateway.port)
    assert found.field("X-End") == "1"
    assert not found.all("X-Hop")
    assert not found.all("Keep-Alive")


def test_the_upstream_learns_where_a_request_came_from(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """X-Forwarded-*, Forwarded and Via tell client, scheme and host; a client's own are lies."""
    get(
        gateway.port,
        "/",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.test",
        "X-Real-IP: 1.2.3.4",
        "Forwarded: for=1.2.3.4",
        source="127.0.0.2",
    )
    head = upstream.heads[-1]
    assert header_values(head, "Host") == ["gateway.test"]
    assert header_values(head, "X-Forwarded-For") == ["127.0.0.2"]
    assert header_values(head, "X-Forwarded-Proto") == ["http"]
    assert header_values(head, "X-Forwarded-Host") == ["gateway.test"]
    assert header_values(head, "X-Real-IP") == []
    (forwarded,) = header_values(head, "Forwarded")
    assert forwarded == 'for=127.0.0.2;host="gateway.test";proto=http'
    (via,) = header_values(head, "Via")
    assert via.startswith("1.1 ")


def test_what_a_trusted_proxy_says_is_passed_on(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """A trusted peer's addresses are kept, with its own behind them."""
    fields = ("X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https")
    get(gateway.port, "/", *fields, source="127.0.0.9")
    head = upstream.heads[-1]
    assert header_values(head, "X-Forwarded-For") == ["1.2.3.4, 127.0.0.9"]
    assert header_values(head, "X-Forwarded-Proto") == ["https"]


def test_a_connection_serves_many_requests(files_gateway: Gateway) -> None:
    """HTTP/1.1 goes on unless somebody closes, and closes when the client says so."""
    with RawClient(files_gateway.port) as client:
        for name, size in [("1k", 1024), ("empty", 0), ("64k", 65536), ("one", 1)]:
            assert len(client.get(f"/{name}").body) == size
        answer = client.get("/1k", "Connection: close")
        assert answer.field("Connection").lower() == "close"
        assert client.has_ended()


def test_http_1_0_closes_unless_asked_to_keep_alive(files_gateway: Gateway) -> None:
    """An HTTP/1.0 client gets what it can read: a length or the end, never chunks."""
    with RawClient(files_gateway.port) as client:
        client.send(b"GET /1k HTTP/1.0\r\nHost: gateway.test\r\nConnection: keep-alive\r\n\r\n")
        answer = client.read()
        assert answer.field("Connection").lower() == "keep-alive"
        client.send(b"GET /1k HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
        assert len(client.read().body) == 1024
        assert client.has_ended()


def test_http_1_0_reads_an_answer_without_length_until_its_end(
    start_gateway: StartGateway,
) -> None:
    """Chunks of the upstream are taken out of their frames for an HTTP/1.0 client."""
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    with RecordingUpstream(chunked) as upstream:
        gateway = start_gateway(PLAIN.format(url=upstream.url))
        with RawClient(gateway.port) as client:
            client.send(b"GET / HTTP/1.0\r\nHost: gateway.test\r\n\r\n")
            answer = client.read()
            assert client.has_ended()
    assert answer.body == b"abcde"
    assert not answer.all("Transfer-Encoding")


@pytest.mark.parametrize(("version", "connects"), [("--http1.0", b"11"), ("--http1.1", b"10")])
def test_curl_speaks_both_versions(files_gateway: Gateway, version: str, connects: bytes) -> None:
    """Two requests of one curl get the same bytes, over one connection if it can be kept."""
    url = f"{files_gateway.url}/1k"
    done = subprocess.run(
        ["curl", "--silent", "--fail", version, "--write-out", "%{num_connects}", url, url],
        check=True,
        capture_output=True,
        timeout=20,
    )
    first, second = connects[:1], connects[1:]
    assert done.stdout == content("1k") + first + content("1k") + second


def test_an_application_sees_the_request_as_it_was_sent(files_gateway: Gateway) -> None:
    """Method, target, query and body of real clients reach a real application."""
    answer = requests.post(
        f"{files_gateway.url}/echo/a%2Fb%20c?x=1&x=2&%C3%BC",
        data=b"\x00\xff body",
        headers={"X-Tag": "1"},
        timeout=20,
    ).json()
    assert answer["method"] == "POST"
    assert answer["target"] == "/echo/a%2Fb%20c?x=1&x=2&%C3%BC"
    assert answer["body"].encode("latin-1") == b"\x00\xff body"
    assert ["X-Tag", "1"] in answer["headers"]


def test_an_expecting_client_may_send_its_body(files_gateway: Gateway) -> None:
    """Curl's Expect: 100-continue is answered, and the upload arrives."""
    done = subprocess.run(
        [
            *("curl", "--silent", "--fail", "--header", "Expect: 100-continue"),
            *("--expect100-timeout", "20", "--data-binary", "a body", "--max-time", "10"),
            f"{files_gateway.url}/hash",
        ],
        check=True,
        capture_output=True,
        timeout=20,
    )
    assert json.loads(done.stdout)["size"] == 6


def test_events_arrive_as_they_are_sent(files_gateway: Gateway) -> None:
    """Each server-sent event is here before the next is made: nothing is held back."""
    url = f"{files_gateway.url}/events/one"
    with requests.get(url, params={"count": "5"}, stream=True, timeout=20) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        seen = []
        for line in stream.iter_lines(chunk_size=1, decode_unicode=True):
            if line:
                seen.append(line)
                requests.post(f"{url}/confirm", timeout=20).raise_for_status()
    assert seen == [f"data: {number}" for number in range(5)]
