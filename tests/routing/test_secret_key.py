"""Keys that stores and logs must not show."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.keys import MAX_BYTES, SKIP, identity
from gateway.routing.secret_key import KNOWN_MAX, KeyHash, compile_logged_target, hashed
from gateway.routing.values import AMBIGUOUS

SECRET = "0123456789abcdef"


def test_it_is_an_hmac_that_others_can_calculate() -> None:
    """The first half of an HMAC-SHA256, marked as one."""
    digest = hmac.new(SECRET.encode(), b"header:x-api-key=a", hashlib.sha256).hexdigest()
    assert KeyHash(SECRET)("header:x-api-key=a") == f"hmac:{digest[:32]}"
    assert KeyHash("another secret!!")("header:x-api-key=a") != f"hmac:{digest[:32]}"


@given(st.lists(st.text(), min_size=2, max_size=6, unique=True))
def test_each_key_has_a_hash_of_its_own(keys: list[str]) -> None:
    """A client that sends the hash of another as its key gets the hash of that."""
    key_hash = KeyHash(SECRET)
    hashes = [key_hash(identity(key)) for key in keys]
    assert len({*hashes}) == len({identity(key) for key in keys})
    assert not {*hashes} & {key_hash(identity(text)) for text in hashes}
    assert all(len(one) <= MAX_BYTES for one in hashes)


def test_the_cache_is_bounded_and_gives_the_same() -> None:
    """A flood of made-up keys costs no memory, and known keys keep their hash."""
    key_hash = KeyHash(SECRET)
    first = key_hash("k0")
    assert key_hash("k0") is first
    for number in range(2 * KNOWN_MAX):
        key_hash(f"k{number}")
    assert len(key_hash._known) <= KNOWN_MAX
    assert key_hash("k0") == first


def test_each_of_several_keys_is_hashed_and_none_stays_none() -> None:
    """As a key function returns them."""
    key_hash = KeyHash(SECRET)
    assert hashed(lambda _: "a", key_hash)(None) == key_hash("a")
    assert hashed(lambda _: ("a", "b"), key_hash)(None) == (key_hash("a"), key_hash("b"))
    assert hashed(lambda _: SKIP, key_hash)(None) is SKIP
    assert hashed(lambda _: AMBIGUOUS, key_hash)(None) is AMBIGUOUS


@pytest.mark.parametrize(
    ("words", "target", "shown"),
    [
        (["query:key"], "/users/7/x?key=a&b=c", "/users/7/x?***"),
        (["query:key"], "/users/7/x", "/users/7/x"),
        (["query:key"], "/users/7/x?", "/users/7/x?"),
        (["path:id"], "/users/7/x?key=a", "/users/***/x?key=a"),
        (["path:id", "header:x"], "/users/7", "/users/***"),
        (["path:id", "query:key"], "/users/%37?key=a", "/***?***"),
        (["path:id"], "/a/../users/7", "/***"),
    ],
)
def test_what_a_log_shows_of_a_target(words: list[str], target: str, shown: str) -> None:
    """The whole query, or the segment, is hidden; what cannot be split is hidden whole."""
    logged = compile_logged_target("/users/{id}/**", words)
    assert logged is not None
    assert logged(target) == shown


def test_most_routes_have_nothing_to_hide() -> None:
    """Fields are not logged; nor does the path of a request, as a whole, name anyone."""
    assert compile_logged_target("/users/{id}", ["header:x", "ip", "path", "route"]) is None
