"""Frames of every kind over real sockets, whole and cut; what RFC 9113 says must become of them.

The client is a judge of every frame that it is sent, and two parsers must agree on every byte that
the origin is sent.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator, Sequence

import h11
import pytest
import requests

from tests.http2 import (
    PREFACE,
    Http2Client,
    data,
    frame,
    head,
    headers,
    interleaved,
    noise,
)
from tests.processes import Gateway
from tests.wire.http2_cases import CASES, ENHANCE_YOUR_CALM, FLOODS, FLOW_CONTROL_ERROR, Case
from tests.wire.origin import CANARY, OracleOrigin
from tests.wire.requests import CASES as HTTP_1_CASES
from tests.wire.requests import Asked

BYTE_BY_BYTE_MAX = 700
HELLO = PREFACE + frame(4, 0, 0)


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
""",
        tmp_path_factory.mktemp("gateway"),
        listener="http2: true",
    )
    yield gateway
    gateway.stop()


def pieces(sent: bytes, cut: str, seed: str) -> Sequence[bytes]:
    """A case's bytes as they are sent."""
    if cut == "byte by byte" and len(sent) <= BYTE_BY_BYTE_MAX:
        return [sent[at : at + 1] for at in range(len(sent))]
    if cut == "whole":
        return [sent]
    chance = random.Random(seed)
    borders = sorted(chance.choices(range(len(sent) + 1), k=8))
    return [sent[a:b] for a, b in zip([0, *borders], [*borders, len(sent)], strict=True) if b > a]


async def canary(client: Http2Client, stream: int, name: str) -> None:
    """Ask for something of one's own, and get it."""
    client.send(headers(stream, head("GET", f"{CANARY}{name}")))
    await client.until(lambda: stream in client.heard and client.heard[stream].is_over)
    heard = client.heard[stream]
    assert (heard.status, heard.body, heard.ended) == (200, f"{CANARY}{name}".encode(), True)


async def run(gateway: Gateway, case: Case, name: str, cut: str) -> None:
    """Send what the case says, and look at what comes."""
    client = await Http2Client.connect(gateway.port, begins=False)
    # What is sent in pieces may have been answered before the piece that is at fault arrives.
    client.may_reset_answers = case.may_begin and cut != "whole"
    await client.send_pieces(pieces(HELLO + case.sent, cut, name))
    if case.goaway >= 0:
        await client.closed()
        assert client.goaways, cut
        assert client.goaways[-1][1] in (case.goaway, *case.also), (cut, client.goaways)
    else:
        await canary(client, 9999, "same")
        if case.status or case.reset >= 0:
            await client.until(
                lambda: (
                    1 in client.heard
                    and (client.heard[1].ended if case.status else client.heard[1].reset >= 0)
                )
            )
            heard = client.heard[1]
            if not (client.may_reset_answers and heard.ended):
                assert heard.status == case.status, (cut, heard.status, heard.reset)
            if case.status:
                assert heard.ended, cut
            else:
                assert heard.reset == case.reset, (cut, heard.reset)
        await client.until(lambda: client.count_over() > len(case.seen))
        assert not client.goaways, cut
    await client.close()


def compare(origin: OracleOrigin, case: Case, cut: str) -> None:
    """Fail unless the origin saw the requests that were meant."""
    found, rest = origin.take(waits_for_end=case.may_begin)
    assert not rest or case.may_begin, (cut, rest)
    seen = [each for each in found if not each.target.startswith(CANARY)]
    if case.may_begin and not case.seen:
        # Requests before the one at fault may have been served.
        assert cut != "whole" or not any(each.body for each in seen), (cut, seen)
        return
    got = sorted(f"{each.method} {each.target}" for each in seen)
    assert got == sorted(asked.line for asked in case.seen), cut
    for asked in case.seen:
        each = next(one for one in seen if f"{one.method} {one.target}" == asked.line)
        check(each.body == asked.body, cut)
        for field, values in asked.fields.items():
            assert each.all(field) == values, (cut, field, each.fields)


def check(is_so: object, cut: str) -> None:
    """Fail unless it is so."""
    assert is_so, cut


@pytest.mark.parametrize("name", CASES)
async def test_what_becomes_of_it(gateway: Gateway, origin: OracleOrigin, name: str) -> None:
    """Every stream has one reading, the same at the origin, or is refused; however it is cut."""
    case = CASES[name]
    for cut in ("whole", "byte by byte", "random"):
        await run(gateway, case, name, cut)
        await asyncio.to_thread(compare, origin, case, cut)


def counted(gateway: Gateway, kind: str) -> float:
    """How many errors of a kind were counted."""
    text = requests.get(f"{gateway.admin_url}/metrics", timeout=30).text
    found = re.search(rf'sluice_client_errors_total{{kind="{kind}"}} (\S+)', text)
    return float(found[1]) if found else 0


@pytest.mark.parametrize("name", FLOODS)
async def test_floods_end_the_connection(gateway: Gateway, origin: OracleOrigin, name: str) -> None:
    """A flood costs little, is counted, and ends its own connection only, with the right code."""
    sent, kind = FLOODS[name]
    before = await asyncio.to_thread(counted, gateway, kind)
    beside = await Http2Client.connect(gateway.port)
    client = await Http2Client.connect(gateway.port, begins=False)
    started = time.process_time()
    client.send(HELLO)
    for piece in [sent] if isinstance(sent, bytes) else sent:
        client.send(piece)
        await client.settle()
    await client.closed()
    codes = (
        (ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR)
        if kind == "http2_protocol"
        else (ENHANCE_YOUR_CALM,)
    )
    assert client.goaways[-1][1] in codes
    assert await asyncio.to_thread(counted, gateway, kind) == before + 1
    await canary(beside, 1, "beside")
    assert time.process_time() - started < 30
    await beside.close()
    await client.close()
    await asyncio.to_thread(origin.take, waits_for_end=True)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"PRI * HTTP/1.1\r\n\r\n",
        PREFACE[:-2] + b"xx",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["HTTP/1.1", "almost", "almost whole", "TLS"],
)
async def test_other_beginnings_are_those_of_http_1(gateway: Gateway, sent: bytes) -> None:
    """Bytes that are not the preface are read as HTTP/1.1, and answered or refused as such."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    for at in range(len(sent)):
        writer.write(sent[at : at + 1])
        await writer.drain()
    async with asyncio.timeout(30):
        line = await reader.readline()
    assert line.startswith(b"HTTP/1.1 "), line
    assert line.startswith(b"HTTP/1.1 200") == sent.startswith(b"GET")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("first", [headers(1, head()), b"x" * 30, frame(6, 0, 0, bytes(8))])
async def test_settings_come_first(gateway: Gateway, first: bytes) -> None:
    """3.4: whatever follows the preface and is not SETTINGS ends the connection."""
    client = await Http2Client.connect(gateway.port, begins=False)
    client.send(PREFACE + first)
    await client.closed()
    assert client.goaways[-1][1] != 0
    await client.close()


@pytest.mark.parametrize("seed", range(25))
async def test_any_interleaving(gateway: Gateway, origin: OracleOrigin, seed: int) -> None:
    """However frames of valid streams are mixed and cut, the origin sees the same requests."""
    # A request that a case before has reset may have come after all.
    await asyncio.to_thread(origin.take, waits_for_end=True)
    chance = random.Random(seed)
    streams = range(1, 2 * chance.randrange(2, 20), 2)
    bodies = {
        stream: chance.choice([None, b"", chance.randbytes(chance.randrange(1, 400))])
        for stream in streams
    }
    client = await Http2Client.connect(gateway.port, begins=False)
    sent = HELLO + interleaved(bodies, chance)
    size = chance.choice([1, 7, 50, 1000, len(sent)])
    await client.send_pieces(sent[at : at + size] for at in range(0, len(sent), size))
    for stream in streams:
        await client.until(lambda: stream in client.heard and client.heard[stream].is_over)  # noqa: B023
        heard = client.heard[stream]
        assert (heard.status, heard.body, heard.ended) == (200, b"/%d" % stream, True)
    await client.close()
    found, rest = await asyncio.to_thread(origin.take)
    assert not rest
    assert {each.target: (each.method, each.body) for each in found} == {
        f"/{stream}": ("POST", body or b"") for stream, body in bodies.items()
    }


@pytest.mark.parametrize("seed", range(40))
async def test_noise(gateway: Gateway, origin: OracleOrigin, seed: int) -> None:
    """Whatever frames come, each is answered by the rules or ends the connection; others go on."""
    chance = random.Random(seed)
    beside = await Http2Client.connect(gateway.port)
    client = await Http2Client.connect(gateway.port, begins=False)
    client.send(HELLO)
    for _ in range(5):
        client.send(noise(chance, 10))
        await client.settle()
    # It is judged up to here: what has come before the end obeyed the rules.
    client.reset()
    assert not client.flaws
    await canary(beside, 1, "beside")
    await beside.close()
    await asyncio.to_thread(origin.take, waits_for_end=True)


def as_frames(sent: bytes) -> bytes | None:
    """The same request in frames; None if it cannot be said so, or is none."""
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(sent)
    body = b""
    try:
        request = parser.next_event()
        if not isinstance(request, h11.Request) or request.http_version != b"1.1":
            return None
        while isinstance(event := parser.next_event(), h11.Data):
            body += bytes(event.data)
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.EndOfMessage) or parser.trailing_data[0]:
        return None
    names = [name for name, _ in request.headers]
    # h11 has joined lengths that are the same.
    is_plain = names.count(b"host") == 1 and sent.lower().count(b"content-length") < 2
    # Cookies are joined, and what exceeds a limit by far ends the connection.
    is_plain = is_plain and names.count(b"cookie") < 2 and len(names) < 150 and len(sent) < 40_000
    if ONE_HOP & {*names} or not is_plain or not request.target.startswith(b"/"):
        return None
    host = dict(request.headers)[b"host"]
    fields: list[tuple[bytes, bytes]] = [
        (b":method", request.method),
        (b":scheme", b"http"),
        (b":path", request.target),
        (b":authority", host),
        *((name, value) for name, value in request.headers if name != b"host"),
    ]
    return headers(1, fields, ends=not body) + (data(1, body, ends=True) if body else b"")


ONE_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    b"te",
}
EQUAL = {
    name: (case, sent)
    for name, case in HTTP_1_CASES.items()
    if len(case.statuses) == 1
    and case.statuses != (400,)
    and not case.ends
    and (sent := as_frames(case.sent)) is not None
}
"""Requests of HTTP/1.1 that can be sent over HTTP/2 as they are.

What is no request (400) may be none of HTTP/2 either: `http2_cases` has these.
"""


@pytest.mark.parametrize("name", EQUAL)
async def test_the_same_becomes_of_it(gateway: Gateway, origin: OracleOrigin, name: str) -> None:
    """A request has the same status, and is the same to the origin, whichever protocol it uses."""
    await asyncio.to_thread(origin.take, waits_for_end=True)
    case, sent = EQUAL[name]
    seen = tuple(
        Asked(one.line, one.body, {k: v for k, v in one.fields.items() if k.lower() != "via"})
        for one in case.seen
    )
    same = Case(sent, case.statuses[0], seen=seen)
    await run(gateway, same, name, "whole")
    await asyncio.to_thread(compare, origin, same, "whole")


def test_enough_is_the_same() -> None:
    """The cases above are not few by mistake."""
    assert len(EQUAL) > 50
