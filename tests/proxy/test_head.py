"""Header fields on their way through: what stays, what goes, and what nobody can spoof."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.proxy.head import (
    Header,
    RequestOrigin,
    http_date,
    request_fields,
)
from gateway.routing.client_address import ClientAddress
from gateway.routing.forwarding import read_proxy_report

VIA = b"Via: 1.1 sluice\r\n"
TRUSTED = ClientAddress([ip_network("192.0.2.7"), ip_network("10.0.0.0/8")])
STRANGER = RequestOrigin("192.0.2.7", "http", "a.test", is_trusted=False)
PROXY = STRANGER._replace(is_trusted=True)


def passed(headers: list[Header], origin: RequestOrigin = STRANGER) -> list[Header]:
    """The fields that the upstream sees."""
    if origin.is_trusted:
        fields = CIMultiDict(
            (name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))
            for name, value in headers
        )
        origin = origin._replace(report=read_proxy_report(TRUSTED, origin.peer, fields))
    block = request_fields(headers, origin, VIA)
    assert block.endswith(b"\r\n")
    lines = block.removesuffix(b"\r\n").split(b"\r\n")
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]


def values(headers: list[Header], name: bytes) -> list[bytes]:
    """All values of a field, in any spelling of its name."""
    return [value for each, value in headers if each.lower().replace(b"_", b"-") == name]


def test_fields_keep_order_case_repetition_and_bytes() -> None:
    """Nothing is joined, sorted, normalised or decoded."""
    headers = [
        (b"x-CuStOm", b"1"),
        (b"Cookie", b"a=1"),
        (b"X-B", b"\xff\xfe \xc3\xa9"),
        (b"hOsT", b"a.test"),
        (b"Cookie", b"b=2"),
        (b"Empty", b""),
        (b"x-custom", b"a\tb  c"),
        (b"Expect", b"100-continue"),
        (b"Date", b"yesterday"),
    ]
    assert passed(headers)[: len(headers)] == headers


HOP_BY_HOP = (
    *(b"Connection", b"Keep-Alive", b"Proxy-Connection", b"TE", b"Trailer", b"Upgrade"),
    *(b"HTTP2-Settings", b"Proxy-Authorization", b"Proxy-Authenticate", b"Transfer-Encoding"),
    b"Content-Length",
)


@pytest.mark.parametrize("name", HOP_BY_HOP)
def test_fields_of_one_connection_stay_behind(name: bytes) -> None:
    """In any spelling, and with underscores, which some applications read as hyphens."""
    for spelled in (name, name.lower(), name.upper(), name.replace(b"-", b"_")):
        assert values(passed([(b"Host", b"a.test"), (spelled, b"x")]), name.lower()) == []


def test_connection_takes_away_what_it_names() -> None:
    """In any case, from several lines and lists, wherever the field stands."""
    headers = [
        (b"X-One", b"1"),
        (b"Connection", b"x-one, X-TWO"),
        (b"x-two", b"2"),
        (b"CONNECTION", b" ,\tX-Three\t,"),
        (b"X-Three", b"3"),
        (b"X-Three-Too", b"4"),
    ]
    names = {name for name, _ in passed(headers)}
    assert b"X-Three-Too" in names
    assert not names & {b"X-One", b"x-two", b"X-Three", b"Connection", b"CONNECTION"}


@pytest.mark.parametrize(
    "name",
    [b"Host", b"Content-Type", b"Authorization", b"Cookie", b"Expect", b"Cache-Control", b"Via"],
)
def test_connection_cannot_take_away_what_others_rely_on(name: bytes) -> None:
    """The fields on a request's origin and target are not removed by `Connection`."""
    headers = [(b"Host", b"a.test"), (b"Connection", b"close, " + name)]
    if name != b"Host":
        headers.append((name, b"x"))
    assert values(passed(headers), name.lower())


@pytest.mark.parametrize(
    "name", [b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host", b"Forwarded", b"Via"]
)
def test_connection_cannot_take_away_what_the_gateway_adds(name: bytes) -> None:
    """It is added after everything else."""
    assert values(passed([(b"Connection", b"close, " + name)]), name.lower())


SPOOFS = (
    *(b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host", b"X-Forwarded-Port"),
    *(b"X-Forwarded-Prefix", b"X-Forwarded-Server", b"X-Real-IP", b"X-Original-URL"),
    *(b"X-Rewrite-URL", b"Forwarded"),
)


@pytest.mark.parametrize("name", SPOOFS)
def test_a_stranger_cannot_say_where_he_comes_from(name: bytes) -> None:
    """His words are dropped, however they are spelled; the gateway's own are there once."""
    for spelled in (name, name.upper(), name.replace(b"-", b"_"), name.replace(b"-", b"_", 1)):
        headers = passed([(b"Host", b"a.test"), (spelled, b"evil"), (spelled, b"worse")])
        assert not any(b"evil" in value or b"worse" in value for _, value in headers)
        assert values(headers, b"x-forwarded-for") == [b"192.0.2.7"]
        assert values(headers, b"x-forwarded-proto") == [b"http"]
        assert values(headers, b"x-forwarded-host") == [b"a.test"]
        assert values(headers, b"forwarded") == [b'for=192.0.2.7;host="a.test";proto=http']


def test_a_trusted_proxy_is_believed() -> None:
    """Its words go on; the list of addresses becomes one line, ending with the proxy itself."""
    headers = passed(
        [
            (b"Host", b"a.test"),
            (b"X-Forwarded-For", b"198.51.100.1"),
            (b"X-Forwarded-Proto", b"https"),
            (b"x-forwarded-for", b"198.51.100.2, 198.51.100.3"),
            (b"X-Forwarded-Host", b"www.test"),
            (b"X-Real-IP", b"198.51.100.1"),
            (b"Forwarded", b"for=198.51.100.1"),
        ],
        PROXY,
    )
    chain = b"198.51.100.1, 198.51.100.2, 198.51.100.3, 192.0.2.7"
    assert values(headers, b"x-forwarded-for") == [chain]
    assert values(headers, b"x-forwarded-proto") == [b"https"]
    assert values(headers, b"x-forwarded-host") == [b"www.test"]
    assert values(headers, b"x-real-ip") == [b"198.51.100.1"]
    nodes = b"for=198.51.100.1, for=198.51.100.2, for=198.51.100.3"
    expected = nodes + b';host="www.test";proto=https, for=192.0.2.7'
    assert values(headers, b"forwarded") == [expected]


def test_an_ipv6_peer() -> None:
    """Bare in one list, in brackets and quotes in the other (RFC 7239, section 6)."""
    headers = passed([(b"Host", b"a.test")], STRANGER._replace(peer="2001:db8::7", scheme="https"))
    assert values(headers, b"x-forwarded-for") == [b"2001:db8::7"]
    expected = b'for="[2001:db8::7]";host="a.test";proto=https'
    assert values(headers, b"forwarded") == [expected]


def test_the_host_is_the_one_that_was_asked_for() -> None:
    """Also where the target named another one, and where there was no field at all."""
    origin = STRANGER._replace(host="b.test:8080")
    assert passed([(b"X", b"1"), (b"Host", b"a.test")], origin)[1] == (b"Host", b"b.test:8080")
    assert passed([(b"X", b"1")], origin)[0] == (b"Host", b"b.test:8080")


def test_via_is_appended() -> None:
    """Those of gateways before stay, and this one comes last (RFC 9110, section 7.6.3)."""
    headers = passed([(b"Via", b"1.0 fred"), (b"Host", b"a.test")])
    assert values(headers, b"via") == [b"1.0 fred", b"1.1 sluice"]
    assert headers[-1] == (b"Via", b"1.1 sluice")


TOKENS = st.text("abcXYZ-_019", min_size=1, max_size=12).map(str.encode)
NAMES = st.one_of(TOKENS, st.sampled_from([*HOP_BY_HOP, *SPOOFS, b"Host", b"Via", b"Date"]))
WORDS = st.binary(max_size=20).map(lambda data: bytes(b for b in data if b >= 32 and b != 127))


@given(
    st.lists(st.tuples(NAMES, WORDS), max_size=12),
    st.lists(NAMES, max_size=4),
    st.booleans(),
)
def test_whatever_is_sent_the_gateways_words_are_last_and_true(
    headers: list[Header], named: list[bytes], is_trusted: bool
) -> None:
    """No mixture of fields and options removes, repeats or forges the gateway's fields."""
    sent = [*headers, (b"Connection", b", ".join(named))]
    got = passed(sent, STRANGER._replace(is_trusted=is_trusted))
    addresses = values(got, b"x-forwarded-for")
    assert len(addresses) == 1
    assert addresses[0].endswith(b"192.0.2.7")
    assert is_trusted or addresses == [b"192.0.2.7"]
    (told,) = values(got, b"forwarded")
    assert is_trusted or told == b'for=192.0.2.7;host="a.test";proto=http'
    assert told.count(b";host=") == told.count(b";proto=") == 1
    assert told.rpartition(b"for=")[2].startswith(b"192.0.2.7")
    assert len(values(got, b"x-forwarded-proto")) == len(values(got, b"x-forwarded-host")) == 1
    assert got[-1] == (b"Via", b"1.1 sluice")
    assert set(values(got, b"host")) == {b"a.test"}
    for name in (b"connection", b"content-length", b"transfer-encoding", b"upgrade", b"te"):
        assert values(got, name) == []


def test_dates() -> None:
    """An IMF-fixdate (RFC 9110, section 5.6.7)."""
    assert http_date(784_111_777) == b"Sun, 06 Nov 1994 08:49:37 GMT"


NODES = st.sampled_from(
    [
        *("203.0.113.9", "10.0.0.2", "2001:db8::1", "[2001:db8::1]:443", "unknown", "_hidden"),
        *('"', "for=", "1.2.3.4:80", "::ffff:10.0.0.3", "a b", ""),
    ]
)
PARAMETERS = st.sampled_from(
    [
        *(
            "for=203.0.113.9",
            'for="[2001:db8::1]"',
            "for=10.0.0.2",
            "for=_x",
            "for=unknown",
            "by=x",
        ),
        *("proto=https", "proto=http", "proto=x", "host=b.test", 'host="c,d"', 'host="', ";;"),
    ]
)
ELEMENTS = st.lists(PARAMETERS, max_size=3).map(";".join)
SAID = st.one_of(
    st.tuples(st.just("X-Forwarded-For"), st.lists(NODES, max_size=3).map(", ".join)),
    st.tuples(st.just("Forwarded"), st.lists(ELEMENTS, max_size=3).map(", ".join)),
    st.tuples(
        st.just("X-Forwarded-Proto"),
        st.lists(st.sampled_from(["https", "HTTP", "wss", "on", "evil", ""]), max_size=3).map(
            ",".join
        ),
    ),
    st.tuples(
        st.just("X-Forwarded-Host"),
        st.lists(st.sampled_from(["b.test", "[::1]:80", '"', "a b", "c/d"]), max_size=3).map(
            ",".join
        ),
    ),
    st.tuples(st.just("X-Forwarded-Ssl"), st.sampled_from(["on", "off", "evil"])),
)


@given(st.lists(SAID, max_size=5))
def test_whatever_a_trusted_proxy_says_both_families_agree(said: list[tuple[str, str]]) -> None:
    """Read by their own documents, they name the same client, scheme, host and hops."""
    headers = [(name.encode(), value.encode()) for name, value in said]
    got = passed(headers, PROXY)
    (chain,), (forwarded,) = values(got, b"x-forwarded-for"), values(got, b"forwarded")
    (proto,), (host,) = values(got, b"x-forwarded-proto"), values(got, b"x-forwarded-host")
    told = CIMultiDict((name, value) for name, value in said)
    story = read_proxy_report(TRUSTED, "192.0.2.7", told)
    client = story.client if story is not None else "192.0.2.7"

    nodes, elements = chain.decode().split(", "), forwarded.decode().split(", ")
    assert len(nodes) == len(elements)
    by_one = TRUSTED.resolve("192.0.2.7", [", ".join(nodes[:-1])])
    by_other = TRUSTED.resolve("192.0.2.7", [], [", ".join(elements[:-1])])
    assert by_one == by_other == client
    parameters = [pair for element in elements for pair in element.split(";")[1:]]
    assert parameters == [f'host="{host.decode()}"', f"proto={proto.decode()}"]
    assert proto in (b"http", b"https")
    again = read_proxy_report(
        TRUSTED, "192.0.2.7", CIMultiDict({"X-Forwarded-For": chain.decode(), "Forwarded": "x=y"})
    )
    assert again is not None
    assert again.client == client


def test_long_chains_are_cut() -> None:
    """If there are thousands of members, only the last ones are processed, in either family."""
    for name, member in (("X-Forwarded-For", "6.6.6.6"), ("Forwarded", "for=6.6.6.6")):
        headers = [(name.encode(), ",".join([member] * 1000).encode())]
        got = passed(headers, PROXY)
        for family in (b"x-forwarded-for", b"forwarded"):
            (value,) = values(got, family)
            assert value.count(b"6.6.6.6") == 32
