"""What masters tell each other: read as it was written, or refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.systems.smockron.codec import MAX_NAME, DelayUntil, MalformedMessage
from gateway.systems.smockron.relay_codec import ORIGIN_BYTES, origin_of, read_relay, write_relay

names = st.binary(max_size=MAX_NAME).map(lambda name: name.decode("utf-8", "surrogateescape"))
messages = st.lists(st.builds(DelayUntil, names, names, st.integers(0, 2**63)), max_size=5)
origins = st.binary(min_size=ORIGIN_BYTES, max_size=ORIGIN_BYTES)


@given(origins, messages)
def test_what_was_written_is_read(origin: bytes, found: list[DelayUntil]) -> None:
    """Whatever bytes names are of."""
    data = write_relay(origin, found)
    assert origin_of(data) == origin
    assert read_relay(data) == found


@given(origins, messages.filter(bool), st.data())
def test_what_is_cut_off_is_refused(
    origin: bytes, found: list[DelayUntil], data: st.DataObject
) -> None:
    """Unless it is cut between two entries."""
    whole = write_relay(origin, found)
    ends = {len(write_relay(origin, found[:count])) for count in range(len(found) + 1)}
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda end: end not in ends))
    with pytest.raises(MalformedMessage):
        read_relay(whole[:cut])


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda data: b"\x01" + data))
def test_anything_is_read_or_refused(data: bytes) -> None:
    """And nothing else happens."""
    origin_of(data)
    with contextlib.suppress(MalformedMessage):
        read_relay(data)
