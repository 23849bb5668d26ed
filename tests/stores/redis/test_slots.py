"""Slots: where keys belong, how a batch is split by them, and how it is put together again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from gateway.base.errors import StoreReplyError, StoreUnavailable
from gateway.config.values.store_url import parse_store_url
from gateway.limits.decision import Decision, Verdict
from gateway.stores.base import Ask
from gateway.stores.opening import find_store
from gateway.stores.redis.address import parse_cluster_url, parse_sentinel_url
from gateway.stores.redis.script import gateways_key, key_prefix, store_key
from gateway.stores.redis.slots import (
    Redirect,
    SlotRange,
    join,
    read_redirect,
    read_slots,
    slot_of,
    split,
    split_by_key,
)
from tests.stores.contract import BUCKET, LOG

ANY_TEXT = st.text(st.one_of(st.sampled_from("{}%a"), st.characters(exclude_categories=())))
FIRST = Decision(True, 0, 0, 5, 4, 1, 7)
SECOND = Decision(True, 3, 0, 5, 2, 1, 8)
REFUSED = Decision(False, 0, 9, 5, 0, 9, 0)


@given(domain=ANY_TEXT, scopes=st.tuples(ANY_TEXT, ANY_TEXT), key=ANY_TEXT)
def test_all_keys_of_an_identity_share_a_slot(
    domain: str, scopes: tuple[str, str], key: str
) -> None:
    """Whatever braces domain, scope and identity hold, redis-py finds the slot that we do."""
    try:
        f"{domain}{scopes[0]}{scopes[1]}".encode()
    except UnicodeEncodeError:
        # Only identities come from requests; the rest is an operator's text.
        domain, scopes = "", ("{a}", "}{")
    names = [
        store_key(key_prefix(domain, replace(limit, scope=scope)), key)
        for limit, scope in zip((BUCKET, LOG), scopes, strict=True)
    ]
    assert {key_slot(name) for name in names} == {slot_of(key)}
    assert key_slot(gateways_key(domain)) == slot_of("gateways")


@given(keys=st.tuples(ANY_TEXT, ANY_TEXT))
def test_different_identities_have_different_keys(keys: tuple[str, str]) -> None:
    """However they are written."""
    first, second = (store_key(b"p:", key) for key in keys)
    assert (first == second) == (keys[0] == keys[1])


def ask_of(*keys: str) -> Ask:
    """An ask with a limit for each key."""
    limits = tuple(replace(BUCKET, scope=f"s{number}") for number in range(len(keys)))
    return Ask(limits, keys, 1, 0)


asks = st.lists(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4).map(lambda keys: ask_of(*keys)),
    max_size=8,
)


@given(batch=asks, by_key=st.booleans())
def test_what_was_split_is_put_together_in_order(batch: list[Ask], by_key: bool) -> None:
    """Every limit of every ask is asked for once, in its slot, and finds its own place again."""
    parts = split_by_key(batch) if by_key else split(batch)
    assert by_key or len({part.slot for part in parts}) == len(parts)
    answers = []
    for part in parts:
        assert all(slot_of(key) == part.slot for ask in part.asks for key in ask.keys)
        # The receipt tells scope and key, so that one in a wrong place would show.
        answers.append(
            [
                Verdict(True, 0, 0, [_told(ask, at) for at in range(len(ask.keys))])
                for ask in part.asks
            ]
        )
    joined = join(batch, parts, answers)
    assert joined.undo == []
    for ask, verdict in zip(batch, joined.verdicts, strict=True):
        assert isinstance(verdict, Verdict)
        assert list(verdict.decisions) == [_told(ask, at) for at in range(len(ask.keys))]


def _told(ask: Ask, at: int) -> Decision:
    return FIRST._replace(receipt=hash((ask.limits[at].scope, ask.keys[at])))


def test_a_refusal_elsewhere_gives_back_what_was_taken() -> None:
    """An ask that one slot allowed and another refused, or could not answer, is undone."""
    question = ask_of("a", "b")
    parts = split([question])
    assert len(parts) == 2
    taken = Verdict(True, 0, 0, [FIRST])
    refused = join([question], parts, [[taken], [Verdict(False, 0, 9, [REFUSED])]])
    assert refused.verdicts == [Verdict(False, 0, 9, [FIRST, REFUSED])]
    assert refused.undo == [(parts[0].asks[0], taken)]
    error = StoreUnavailable("gone")
    assert join([question], parts, [[taken], error]) == ([error], [(parts[0].asks[0], taken)])
    both = join([question], parts, [[taken], [Verdict(True, 3, 0, [SECOND])]])
    assert both == ([Verdict(True, 3, 0, [FIRST, SECOND])], [])


def test_a_look_has_nothing_to_give_back() -> None:
    """Cost 0 took nothing, whatever the other limits decided."""
    question = ask_of("a", "b")._replace(cost=0)
    taken = Verdict(True, 0, 0, [FIRST])
    answers = [[taken], [Verdict(False, 0, 9, [REFUSED])]]
    assert join([question], split([question]), answers).undo == []


@pytest.mark.parametrize(
    ("text", "redirect"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirect(3999, "127.0.0.1", 6381)),
        ("ASK 3999 fd00::1:6381", Redirect(3999, "fd00::1", 6381)),
        ("MOVED 1 :6381", Redirect(1, "", 6381)),
        ("MOVED 1 ?:6381", Redirect(1, "", 6381)),
        ("MOVED 1 redis-1.internal:6381", Redirect(1, "redis-1.internal", 6381)),
    ],
)
def test_redirections_are_read(text: str, redirect: Redirect) -> None:
    """With names, IPv6, and the words for the host that was asked."""
    assert read_redirect(text) == redirect


@pytest.mark.parametrize("text", ["MOVED", "MOVED 1", "MOVED x 127.0.0.1:1", "ASK 1 127.0.0.1"])
def test_other_redirections_are_refused(text: str) -> None:
    """As an answer that cannot be understood."""
    with pytest.raises(StoreReplyError):
        read_redirect(text)


def test_the_map_is_read() -> None:
    """Without replicas; a missing host is the one that was asked."""
    reply = [
        [0, 99, [b"10.0.0.1", 7000, b"id"], [b"10.0.0.2", 7000, b"id"]],
        [100, 100, [None, 7001, b"id", []]],
        [101, 200, [b"?", 7002]],
    ]
    assert read_slots(reply) == [
        SlotRange(0, 99, "10.0.0.1", 7000),
        SlotRange(100, 100, "", 7001),
        SlotRange(101, 200, "", 7002),
    ]


@pytest.mark.parametrize(
    "reply", [None, b"OK", [1], [[]], [[0, 5]], [[5, 0, [b"h", 1]]], [[0, 16384, [b"h", 1]]]]
)
def test_other_maps_are_refused(reply: object) -> None:
    """As an answer that cannot be understood."""
    with pytest.raises(StoreReplyError):
        read_slots(reply)


def test_urls_of_several_servers() -> None:
    """Each host has a port; credentials are those of the servers, Sentinels have their own."""
    url = "redis+sentinel://user:pw@a:1,[::1],c/counts/3?sentinel_password=other"
    sentinels, service, server = parse_sentinel_url(url)
    assert [str(each) for each in sentinels] == ["a:1", "[::1]:26379", "c:26379"]
    assert {(each.username, each.password, each.db) for each in sentinels} == {("", "other", 0)}
    assert (service, server.username, server.password, server.db) == ("counts", "user", "pw", 3)
    nodes = parse_cluster_url("rediss+cluster://user:pw@a,b:7000")
    assert [str(each) for each in nodes] == ["a:6379", "b:7000"]
    assert all(each.tls is not None and each.password == "pw" for each in nodes)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://user:pw@a:1,[::1],c/counts/3?sentinel_password=other",
        "redis+cluster://[::1]:7000,[fd00::2]",
        "rediss+cluster://a,[::1]",
    ],
)
def test_a_store_of_several_servers_is_made_whichever_of_them_is_an_ipv6_address(url: str) -> None:
    """`urlsplit` of newer Pythons refuses brackets behind other hosts; the configuration does not.

    Nothing is connected to yet.
    """
    assert parse_store_url(url).place.count("[") == url.count("[")
    find_store(url)(url, domain="d", deadline_us=1)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:s3cret-word@a",
        "redis+sentinel://:s3cret-word@a,/counts",
        "redis+sentinel://:s3cret-word@a/counts/x",
        "redis+sentinel://:s3cret-word@a/counts?colour=s3cret-word",
        "redis+sentinel://:s3cret-word@a:port/counts",
        "redis+sentinel://:s3cret-word@[::1/counts",
        "redis://:s3cret-word@a/counts",
    ],
)
def test_unusable_sentinel_urls_are_refused_without_telling_secrets(url: str) -> None:
    """The operator learns what is wrong, a log never learns the password."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every text is looked at
        parse_sentinel_url(url)
    assert "s3cret-word" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://:s3cret-word@a/3",
        "redis+cluster://:s3cret-word@a?db=3",
        "redis+cluster://:s3cret-word@a,",
        "redis://:s3cret-word@a",
    ],
)
def test_unusable_cluster_urls_are_refused_without_telling_secrets(url: str) -> None:
    """The error does not show the URL's values."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every text is looked at
        parse_cluster_url(url)
    assert "s3cret-word" not in f"{caught.value} {caught.value.__cause__}"
