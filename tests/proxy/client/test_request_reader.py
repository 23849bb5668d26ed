"""What a client sends is read in one way, however it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import BadRequestError
from gateway.proxy.client.read_flow import AHEAD_MAX, BODY_BUFFER, ReadFlow
from gateway.proxy.client.request_parser import RequestParser
from gateway.proxy.client.request_reader import RequestReader
from tests.proxy.client.test_request_parser import MAX_HEAD, sent
from tests.wire.messages import requests

SMALL = b"GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n"

streams = st.one_of(sent, st.lists(requests().map(lambda one: one.named(b"x")), max_size=4)).map(
    lambda one: one if isinstance(one, bytes) else b"".join(one)
)


class Recorded(asyncio.Transport):
    """A transport that notes whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def pause_reading(self) -> None:
        """Note it."""
        self.told.append("pause")

    def resume_reading(self) -> None:
        """Note it."""
        self.told.append("resume")

    def is_closing(self) -> bool:
        """It is open."""
        return False

    def abort(self) -> None:
        """Nobody resets it."""


def new_reader(flow: ReadFlow | None = None) -> RequestReader:
    """A reader of a new connection."""
    return RequestReader(RequestParser(8190, 100), MAX_HEAD, flow or ReadFlow())


def _taken(reader: RequestReader, found: list[tuple[object, ...]]) -> bool:
    """Take the requests that are here as a whole; returns whether nothing else is."""
    while reader.head is not None or reader.rest:
        if reader.head is None and not reader.next_head():
            return False
        head = reader.head
        if isinstance(head, BadRequestError):
            found.append((head.status, head.title))
            reader.drop()
            return False
        assert head is not None
        if reader.is_in_body:
            return False
        body = reader.payload.read_nowait() if reader.payload.total_bytes else b""
        found.append((head.method, head.path, head.raw_headers, body))
        reader.head = None
    return True


async def _read(pieces: Sequence[bytes]) -> list[tuple[object, ...]]:
    reader = new_reader()
    found: list[tuple[object, ...]] = []
    is_between = True
    for piece in pieces:
        if found and len(found[-1]) == 2:
            break
        if not (is_between and reader.start(piece)):
            reader.feed(piece)
        is_between = _taken(reader, found)
        if reader.has_failed and reader.is_in_body:
            found.append(("a body that is not valid", ""))
            break
    return found


def read(pieces: Sequence[bytes]) -> list[tuple[object, ...]]:
    """The requests in these bytes, and what ends them."""
    return asyncio.run(_read(pieces))


@given(data=streams, cuts=st.lists(st.integers(0, 2000), max_size=4))
def test_it_does_not_matter_how_requests_are_cut(data: bytes, cuts: list[int]) -> None:
    """At once, in pieces or byte by byte: the same requests, and the same end."""
    borders = sorted(cut % (len(data) + 1) for cut in cuts)
    pieces = [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)], strict=True)]
    found = read([data])
    assert read([piece for piece in pieces if piece]) == found
    if len(data) <= 1000:
        assert read([bytes([byte]) for byte in data]) == found


@pytest.mark.parametrize("behind", [b"", SMALL, SMALL[:9], b"\r\n", b"\0"])
async def test_what_lies_behind_a_request_is_left_alone(behind: bytes) -> None:
    """It is kept as it is: it may belong to another protocol."""
    reader = new_reader()
    assert reader.start(SMALL + behind) == len(SMALL)
    assert reader.rest == behind
    assert reader.is_empty is not bool(behind)
    assert reader.drop() == behind
    assert reader.head is None


async def test_a_request_that_comes_with_its_body_is_whole() -> None:
    """Its body is read with its head, and what lies behind that is not."""
    reader = new_reader()
    assert reader.start(POST % 4 + b"body" + SMALL)
    assert (reader.payload.is_eof(), reader.payload.read_nowait()) == (True, b"body")
    assert reader.rest == SMALL


async def test_a_full_body_stops_the_client_until_it_is_taken() -> None:
    """The stream of aiohttp signals when; its end alone does not resume the transport."""
    transport, flow = Recorded(), ReadFlow()
    flow.start(transport)
    reader = new_reader(flow)
    reader.start(POST % (3 * BODY_BUFFER))
    reader.feed(b"x" * 2 * BODY_BUFFER)
    assert transport.told == []
    reader.feed(b"x")
    assert transport.told == ["pause"]
    assert flow.is_paused
    await reader.payload.readany()
    assert transport.told == ["pause", "resume"]
    reader.feed(b"x" * (BODY_BUFFER - 1))
    assert reader.payload.is_eof()
    assert transport.told == ["pause", "resume"]


async def test_two_reasons_to_stop_a_client_are_both_to_be_over() -> None:
    """What lay behind a request may be more of the next body than there is room for."""
    transport, flow = Recorded(), ReadFlow()
    flow.start(transport)
    reader = new_reader(flow)
    reader.start(SMALL + POST % (3 * BODY_BUFFER) + b"x" * (2 * BODY_BUFFER + 1))
    assert transport.told == []
    reader.hold_back()
    assert transport.told == ["pause"]
    reader.head = None
    assert reader.next_head()
    assert (transport.told, reader.rest) == (["pause"], b"")
    await reader.payload.readany()
    assert transport.told == ["pause", "resume"]
    assert not flow.is_paused


async def test_what_lies_behind_a_request_is_bounded() -> None:
    """Reading resumes once half of it is served."""
    transport, flow = Recorded(), ReadFlow()
    flow.start(transport)
    reader = new_reader(flow)
    reader.start(SMALL * (AHEAD_MAX // len(SMALL) + 2))
    reader.hold_back()
    assert transport.told == ["pause"]
    while flow.is_paused:
        reader.head = None
        assert reader.next_head()
    assert transport.told == ["pause", "resume"]
    assert AHEAD_MAX // 2 - len(SMALL) < len(reader.rest) <= AHEAD_MAX // 2


async def test_a_lost_connection_ends_its_streams() -> None:
    """A reader of a body that can no longer arrive gets an error."""
    flow = ReadFlow()
    flow.start(Recorded())
    reader = new_reader(flow)
    reader.start(POST % 9)
    flow.stop()
    with pytest.raises(RuntimeError, match="closed"):
        await reader.payload.readany()
