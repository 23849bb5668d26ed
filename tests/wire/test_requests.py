"""Requests of every kind over real sockets, each whole, first or not, and cut in several ways.

After each, whatever it was: two parsers agree on every byte that the origin was sent, the origin
saw the requests that were meant and no others, and the next request is served as its own.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.raw import RawClient, RawConnection, RawUpstream, get
from tests.processes import Gateway
from tests.wire.judge import StrictClient
from tests.wire.origin import CANARY, OracleOrigin, Seen
from tests.wire.requests import CASES, Case

BYTE_BY_BYTE_MAX = 2_000
"""Bytes of the longest case that is sent byte by byte."""


@pytest.fixture(scope="module")
def gateway(origin: OracleOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all cases; a traceback of any of them fails at the end."""
    gateway = Gateway.start(
        f"""
upstreams:
  origin: {{ targets: {origin.url} }}
  nobody: {{ targets: http://127.0.0.1:9 }}
routes:
  /**: {{ upstream: origin }}
  /admin/**: {{ upstream: nobody }}
  /spoofed: {{ upstream: origin, limit: 2/h per ip }}
""",
        tmp_path_factory.mktemp("gateway"),
    )
    yield gateway
    gateway.stop()


def pieces(sent: bytes, cut: str, seed: str) -> Sequence[bytes]:
    """A case's bytes as they are sent."""
    if cut in ("whole", "second"):
        return [sent]
    if cut == "byte by byte" and len(sent) <= BYTE_BY_BYTE_MAX:
        return [sent[at : at + 1] for at in range(len(sent))]
    chance = random.Random(seed)
    borders = sorted(chance.choices(range(len(sent) + 1), k=8))
    return [sent[a:b] for a, b in zip([0, *borders], [*borders, len(sent)], strict=True) if b > a]


def canary(client: StrictClient, name: str) -> None:
    """Ask for something of one's own, and get it."""
    heard = client.ask(f"GET {CANARY}{name} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode("ascii"))
    assert (heard.status, heard.body, heard.is_whole) == (200, f"{CANARY}{name}".encode(), True)


def send(client: StrictClient, case: Case, name: str, cut: str) -> None:
    """Send what the case says; a gateway may have closed before all of it is out."""
    sent = case.sent.replace(b" / ", b" /broken ", 1) if case.is_broken_off else case.sent
    with contextlib.suppress(ConnectionError):
        for piece in pieces(sent, cut, name):
            client.send(piece)
    if case.ends:
        client.end()


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_it(gateway: Gateway, origin: OracleOrigin, name: str) -> None:
    """Every request has one reading, the same at the origin, or is refused; however it is cut."""
    case = CASES[name]
    for cut in ("whole", "second", "byte by byte", "random"):
        with StrictClient(gateway.port) as client:
            if cut == "second":
                # What comes as a whole between two requests takes a shorter way.
                canary(client, "first")
            send(client, case, name, cut)
            method = b"HEAD" if case.sent.startswith(b"HEAD") else b"GET"
            answers = [client.hear(method) for _ in case.statuses]
            assert tuple(answer.status for answer in answers) == case.statuses, cut
            assert all(answer.is_whole for answer in answers), cut
            assert not any(b"script" in answer.body for answer in answers), cut
            if case.closes:
                assert case.ends or not answers[-1].keeps_alive, cut
                assert client.has_ended(), cut
            else:
                canary(client, "same")
        with StrictClient(gateway.port) as client:
            canary(client, "new")
        seen, rest = origin.take(waits_for_end=case.is_broken_off)
        # The beginning of one that was broken off may come after its answer.
        assert not rest or b"/broken" in rest, cut
        compare([each for each in seen if not each.target.startswith(CANARY)], case, cut)


def compare(seen: Sequence[Seen], case: Case, cut: str) -> None:
    """Fail unless these are the requests that were meant."""
    assert [f"{each.method} {each.target}" for each in seen] == [
        asked.line for asked in case.seen
    ], cut
    for each, asked in zip(seen, case.seen, strict=True):
        assert each.body == asked.body, cut
        for field, values in asked.fields.items():
            assert each.all(field) == values, (cut, field)


def test_spoofed_addresses_do_not_help(gateway: Gateway) -> None:
    """P48, P49: whoever is not trusted is counted by the address he comes from."""
    spoofs = ("1.1.1.1", "2.2.2.2, 192.168.0.2", "unknown", "[2001:db8::1]:443")
    answers = [
        get(gateway.port, "/spoofed", f"X-Forwarded-For: {spoof}", source="127.0.0.9")
        for spoof in spoofs
    ]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]


def test_a_million_small_chunks(gateway: Gateway, origin: OracleOrigin) -> None:
    """A21, smaller: each byte in a chunk of its own, which no memory or time is wasted on."""
    origin.take()
    head = b"POST /small HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    with RawClient(gateway.port) as client:
        client.send(head + b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
        assert client.read().status == 200
    (seen,), _ = origin.take()
    assert seen.body == b"x" * 50_000


def test_a_gateway_that_forwards_to_itself(tmp_path: Path) -> None:
    """C18: a request that runs in circles ends with 508, soon."""
    ports: list[int] = []

    def forward(connection: RawConnection) -> None:
        while head := connection.read_head():
            with RawClient(ports[0]) as client:
                client.send(head)
                answer = client.read()
            line = b"HTTP/1.1 %d Again\r\nContent-Length: %d\r\n\r\n"
            connection.send(line % (answer.status, len(answer.body)) + answer.body)

    with RawUpstream(forward) as circle:
        gateway = Gateway.start(f"routes: {{ /**: {{ upstream: {circle.url} }} }}\n", tmp_path)
        ports.append(gateway.port)
        assert get(gateway.port).status == 508
        gateway.stop()
