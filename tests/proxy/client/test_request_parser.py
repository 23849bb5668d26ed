"""A parser that is used again reads each head as a new parser does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import BadRequestError
from gateway.proxy.client.framing import RequestFraming
from gateway.proxy.client.request_parser import RequestParser
from tests.wire.changed_requests import BASES, KINDS, TOKENS, Edit, mutated
from tests.wire.messages import requests

MAX_HEAD: Final = 64 * 1024
edits: Final = st.lists(
    st.builds(
        Edit,
        kind=st.sampled_from(KINDS),
        at=st.floats(0, 1),
        size=st.integers(1, 30),
        token=st.integers(0, 999),
    ),
    max_size=3,
)
sent: Final = st.one_of(
    st.builds(mutated, st.sampled_from(BASES), edits),
    st.lists(st.sampled_from([*TOKENS, *BASES]), min_size=1, max_size=6).map(b"".join),
    requests().map(lambda request: request.head),
)
SMALL: Final = b"GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n"


def new_parser() -> RequestParser:
    """A parser that has read nothing."""
    return RequestParser(8190, 100)


def head_of(data: bytes) -> bytes:
    """The head at the beginning of what a client sends; nothing if there is no whole one."""
    framing = RequestFraming(8190 + 64, MAX_HEAD, 100)
    head, _ = framing.cut_head(data)
    return head if framing.problem is None else b""


def read(parser: RequestParser, head: bytes) -> tuple[object, ...]:
    """Everything that a parser says of a head."""
    try:
        message = parser.parse(head)
    except BadRequestError as error:
        return error.status, error.title, error.kind
    return (
        message.method,
        message.path,
        message.version,
        tuple(message.headers.items()),
        message.raw_headers,
        message.should_close,
        message.compression,
        message.upgrade,
        message.chunked,
        message.url,
    )


def check(heads: Sequence[bytes]) -> None:
    """Read heads one after the other, and each by itself."""
    used = new_parser()
    for head in heads:
        assert read(used, head) == read(new_parser(), head)


@given(st.lists(sent.map(head_of).filter(bool), min_size=1, max_size=6))
def test_a_head_behind_others_is_read_as_if_it_were_the_first(heads: list[bytes]) -> None:
    """Whatever was read before it, valid or not."""
    check([each for head in heads for each in (head, SMALL)])


@given(beginning=sent, data=sent)
def test_a_beginning_of_a_head_leaves_nothing(beginning: bytes, data: bytes) -> None:
    """A mistake in an aborted head does not affect the next one."""
    head = head_of(data)
    if not head:
        return
    used = new_parser()
    used.parse(SMALL)
    used.flaw(beginning)
    assert read(used, head) == read(new_parser(), head)


@pytest.mark.parametrize(
    "fields",
    [
        b"Connection: close\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Encoding: gzip\r\nContent-Length: 3\r\n",
        b"Content-Length: 18446744073709551615\r\n",
        b"Content-Length: 3\r\nContent-Length: 3\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        b"X:\r\nY: \t\r\n",
        b"X: " + b"x" * 9000 + b"\r\n",
        b": x\r\n",
        b"X: y\r\n" * 101,
    ],
)
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_what_a_head_may_leave_behind(fields: bytes, version: bytes) -> None:
    """Framing, codings, the end of the connection and errors concern one head only."""
    head = b"POST / HTTP/%b\r\nHost: a.test\r\n%b\r\n" % (version, fields)
    check([SMALL, head, SMALL, head, head, SMALL])
    check([head, b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", head, SMALL])
