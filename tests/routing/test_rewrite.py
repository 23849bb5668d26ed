"""Paths that become others for the upstream, and their readings."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import BadRequestError
from gateway.routing.path import readings
from gateway.routing.rewrite import Rewrite

STRIP = Rewrite(1, (), keeps_rest=True)
MOVE = Rewrite(1, ("v2", "x"), keeps_rest=True)
SWAP = Rewrite(3, ("v2", 2, 1), keeps_rest=True)

PIECES = st.sampled_from(
    [
        *("/", "//", "/../", "/./", "api", "a", "b", ".", "..", "%2F", "%2f", "%2e", "%2E"),
        *(";", ";a=1", "%25", "%41", "%3B", "%c3%bc", "%5c"),
    ]
)
RESTS = st.lists(PIECES, max_size=8).map("".join)


@given(rest=RESTS, rewrite=st.sampled_from([STRIP, MOVE, SWAP]))
def test_a_new_path_reads_only_as_the_old_one_did(rest: str, rewrite: Rewrite) -> None:
    """Whatever may be read below what was replaced could be read below what replaces it."""
    path = f"/api/{rest}"
    try:
        # The route's own path: a request whose readings are not all of it never gets here.
        if not all(one.startswith("/api/") for one in readings(path)):
            return
        new = rewrite.apply(path)
    except BadRequestError:
        return

    assert new.startswith("/")
    if rewrite is STRIP:
        below = {one.removeprefix("/api") for one in readings(path)}
        assert set(readings(new)) == below
    elif rewrite is MOVE:
        below = {f"/v2/x{one.removeprefix('/api')}" for one in readings(path)}
        assert set(readings(new)) == below
    else:
        taken = path.split("/")[1:4]
        assert new.startswith(f"/v2/{taken[2]}/{taken[1]}")
        assert all(one.startswith("/v2/") for one in readings(new))


@given(rest=RESTS)
def test_bytes_are_kept(rest: str) -> None:
    """What is left of a path is what was sent, to the byte."""
    with suppress(BadRequestError):
        assert STRIP.apply(f"/api/{rest}") == f"/{rest}"


def test_a_piece_that_is_no_single_path_is_refused() -> None:
    """Text that could be read in several ways is no piece of a path."""
    for piece in ("a;b", "a%2Fb"):
        with pytest.raises(ValueError, match="several ways"):
            Rewrite(0, (piece,), keeps_rest=True)


def test_the_server_itself_stays_itself() -> None:
    """`OPTIONS *` names no path."""
    assert STRIP.apply("*") == "*"
