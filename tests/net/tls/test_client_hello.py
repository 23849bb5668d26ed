"""What a TLS client's first message says, in whatever records it comes."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.tls.client_hello import offered_protocols


def hello(protocols: Sequence[str] = (), name: str = "a.test") -> bytes:
    """The first message of OpenSSL's own client."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(protocols)
    arrived, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(arrived, sent, server_hostname=name).do_handshake()
    return sent.read()


def records(message: bytes, sizes: Sequence[int]) -> bytes:
    """The same handshake message in records of other sizes; the last one takes the rest."""
    found, rest = b"", message
    for size in [*sizes, len(message)]:
        part, rest = rest[:size], rest[size:]
        if part:
            found += b"\x16\x03\x01" + len(part).to_bytes(2) + part
    return found


names = st.lists(st.text("abc/.0123456789", min_size=1, max_size=20), max_size=8)


@given(protocols=names, sizes=st.lists(st.integers(1, 400), max_size=20))
def test_protocols_are_read_from_any_records(protocols: list[str], sizes: list[int]) -> None:
    """In the client's order; None if it does not use ALPN."""
    message = hello(protocols)[5:]
    expected = tuple(one.encode() for one in protocols) or None
    assert offered_protocols(records(message, sizes)) == expected


@given(st.binary(max_size=300), st.integers(0, 600))
def test_what_cannot_be_read_names_nothing(noise: bytes, kept: int) -> None:
    """A message that is cut off, or followed or replaced by anything, raises nothing."""
    whole = hello(["http/1.1"])
    assert offered_protocols(whole[:kept]) in {None, (b"http/1.1",)}
    offered_protocols(whole[:kept] + noise)
    assert offered_protocols(noise) is None
