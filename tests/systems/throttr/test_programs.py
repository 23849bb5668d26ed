"""Random programs of requests, cut anywhere, are answered as small models of the protocols say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.systems.throttr.models import Model2, Model5, cuts, requests2, requests5, times
from tests.systems.throttr.wire import START, Line

JUNK = st.binary(min_size=1, max_size=3)


@settings(max_examples=150)
@given(data=st.data())
def test_version_2_is_answered_as_its_model_says(data: st.DataObject) -> None:
    """Any requests and any bytes between them, in any pieces, at any time."""
    line, model, now, left = Line(0), Model2(), START, b""
    request = st.one_of(*[requests2()] * 8, JUNK)
    for _ in range(data.draw(st.integers(1, 8))):
        said = b"".join(data.draw(st.lists(request, min_size=1, max_size=5)))
        for piece in data.draw(cuts(said)):
            wanted, left = model.read(left + piece, now)
            assert line.say(piece, now, data.draw(st.integers(1, 3))) == wanted
            assert line.parser.is_waiting == bool(left)
        now += data.draw(times())


@pytest.mark.parametrize("size", [8, 16, 32, 64])
@settings(max_examples=80)
@given(data=st.data())
def test_version_5_is_answered_as_its_model_says(size: int, data: st.DataObject) -> None:
    """Any requests, in any pieces, at any time; an invalid one is the end."""
    line, model, now, left = Line(size), Model5(size), START, b""
    request = st.one_of(*[requests5(size)] * 30, JUNK)
    for _ in range(data.draw(st.integers(1, 8))):
        said = b"".join(data.draw(st.lists(request, min_size=1, max_size=5)))
        for piece in data.draw(cuts(said)):
            wanted, left = model.read(left + piece, now)
            assert line.say(piece, now, data.draw(st.integers(1, 3))) == wanted
            assert line.parser.is_ended == model.is_over
            assert model.is_over or line.parser.is_waiting == bool(left)
        now += data.draw(times())
