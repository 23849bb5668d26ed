"""Which route a request takes, compared with a matcher that tries every route."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.base.errors import BadRequestError
from gateway.routing.path import canonical_path
from gateway.routing.pattern import may_meet, shadowed
from gateway.routing.sender import Sender
from gateway.routing.table import Pattern, RouteTable
from tests.routing.test_keys import Request as View

NONE: CIMultiDict[str] = CIMultiDict()
VIEW = View()

PATTERNS = st.builds(
    Pattern,
    st.sampled_from([None, "a.test", "*.a.test", "*.test"]),
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "{x}"]), max_size=3),
        st.sampled_from(["", "", "/", "/**", "/**"]),
    ).map(lambda parts: "".join(f"/{segment}" for segment in parts[0]) + parts[1] or "/"),
    st.sampled_from([(), (), ("GET",), ("GET", "POST"), ("HEAD",), ("HEAD", "POST")]),
    st.sampled_from([(), (), (("X-V", "1"),), (("x-v", "*"),), (("x-v", "1"), ("X-W", "*"))]),
)
ROUTES = st.lists(PATTERNS, max_size=8)

HOSTS = ["", "a.test", "z.a.test", "y.z.a.test", "z.test", "z.z"]
PATHS = [
    "".join(f"/{segment}" for segment in segments) + tail
    for depth in range(4)
    for segments in product("abz", repeat=depth)
    for tail in ("", "/")
    if segments or tail
] + ["/a/b/z/z/z", "//a", "/a//b"]
METHODS = ["GET", "HEAD", "POST", "PUT"]
HEADERS: list[CIMultiDict[str]] = [
    CIMultiDict({**v, **w}) for v in ({}, {"x-v": "1"}, {"x-v": "2"}) for w in ({}, {"x-w": "0"})
]
Request = tuple[str, str, str, CIMultiDict[str]]
REQUESTS = st.tuples(
    st.sampled_from(HOSTS),
    st.sampled_from(PATHS),
    st.sampled_from(METHODS),
    st.sampled_from(HEADERS),
)


@cache
def _fits_place(pattern: Pattern, host: str, path: str) -> bool:
    wanted = pattern.host
    if wanted is not None and not (
        host.endswith(wanted[1:]) if wanted.startswith("*") else host == wanted
    ):
        return False
    if pattern.path.endswith("/**"):
        regex = re.sub(r"\{x\}", "[^/]+", pattern.path[:-3]) + "(/.*)?"
    else:
        regex = re.sub(r"\{x\}", "[^/]+", pattern.path)
    return re.fullmatch(regex, path) is not None


def _fits_headers(pattern: Pattern, headers: CIMultiDict[str]) -> bool:
    return all(
        name.lower() in headers and value in ("*", headers[name.lower()])
        for name, value in pattern.headers
    )


def _fits(pattern: Pattern, request: Request, patterns: list[Pattern]) -> bool:
    host, path, method, headers = request
    methods = set(pattern.methods)
    if "GET" in methods and not any(
        "HEAD" in other.methods for other in patterns if _has_same_place(pattern, other)
    ):
        methods.add("HEAD")
    return (
        _fits_place(pattern, host, path)
        and (not methods or method in methods)
        and _fits_headers(pattern, headers)
    )


def _has_same_place(one: Pattern, other: Pattern) -> bool:
    return (one.host, one.shape) == (other.host, other.shape)


def _rank(pattern: Pattern) -> tuple[object, ...]:
    """The documented order, spelled out once more; smaller comes first."""
    if pattern.host is None:
        host = (2, 0)
    elif pattern.host.startswith("*"):
        host = (1, -len(pattern.host))
    else:
        host = (0, 0)
    segments = [segment == "{x}" for segment in pattern.path.split("/")]
    if pattern.path.endswith("/**"):
        path = (2, -len(segments), segments)
    elif any(segments):
        path = (1, 0, segments)
    else:
        path = (0, 0, segments)
    return (host, path, not pattern.methods, -len(pattern.headers))


def _reference(patterns: list[Pattern], request: Request) -> int | None:
    fitting = [index for index, pattern in enumerate(patterns) if _fits(pattern, request, patterns)]
    return min(fitting, key=lambda index: (_rank(patterns[index]), index), default=None)


def _table(patterns: list[Pattern]) -> RouteTable[int]:
    return RouteTable([(pattern, index) for index, pattern in enumerate(patterns)])


@given(ROUTES, st.lists(REQUESTS, min_size=20, max_size=20))
def test_agrees_with_trying_every_route(patterns: list[Pattern], requests: list[Request]) -> None:
    """The table finds what the documented rule finds, for any routes and requests."""
    table = _table(patterns)
    for request in requests:
        assert table.match(*request) == _reference(patterns, request), request


@given(ROUTES, st.lists(REQUESTS, min_size=10, max_size=10))
def test_methods_are_those_that_would_have_matched(
    patterns: list[Pattern], requests: list[Request]
) -> None:
    """Where no route fits, `Allow` names exactly the methods with which one would have."""
    table = _table(patterns)
    for host, raw_path, method, headers in requests:
        path = canonical_path(raw_path)
        if table.match(host, path, method, headers) is None:
            assert table.methods(host, path, headers) == {
                other for other in METHODS if table.match(host, path, other, headers) is not None
            }


@given(st.lists(PATTERNS, max_size=4))
def test_shadowed_routes_are_those_that_one_other_hides(patterns: list[Pattern]) -> None:
    """A route is reported if and only if each of its requests goes to one same other route."""
    table = _table(patterns)
    reported = dict(shadowed([(pattern, None) for pattern in patterns]))
    winners: dict[int, set[int | None]] = {index: set() for index in range(len(patterns))}
    common: dict[int, set[int]] = {index: set(range(len(patterns))) for index in winners}
    for request in product(HOSTS, PATHS, METHODS, HEADERS):
        fitting = [
            index for index, pattern in enumerate(patterns) if _fits(pattern, request, patterns)
        ]
        for index in fitting:
            winners[index].add(table.match(*request))
            common[index] &= set(fitting)
    for index, pattern in enumerate(patterns):
        takers = {
            other
            for other in common[index] - {index}
            if (_rank(patterns[other]), other) < (_rank(pattern), index)
        }
        if takers:
            assert index not in winners[index]
            assert reported[index] in takers
        else:
            assert index not in reported


def test_prefixes_end_at_segments() -> None:
    """`/v1/**` holds `/v1`, `/v1/` and all below, and nothing that merely begins so."""
    table = _table([Pattern(None, "/v1/**")])
    assert table.match("", "/v1", "GET", NONE) == 0
    assert table.match("", "/v1/", "GET", NONE) == 0
    assert table.match("", "/v1/x/y", "GET", NONE) == 0
    assert table.match("", "/v1x", "GET", NONE) is None
    assert table.match("", "/V1", "GET", NONE) is None


def test_less_specific_routes_are_tried_next() -> None:
    """A method that the exact path does not take falls back to the prefix, then to any host."""
    table = _table(
        [
            Pattern("a.test", "/pay", ("POST",)),
            Pattern("a.test", "/**", ("PUT",)),
            Pattern(None, "/**"),
        ]
    )
    assert [table.match("a.test", "/pay", method, NONE) for method in ("POST", "PUT", "GET")] == [
        0,
        1,
        2,
    ]


def test_literals_come_before_parameters() -> None:
    """Among patterns of one kind and length, segments are compared from the left."""
    table = _table(
        [
            Pattern(None, "/{x}/b"),
            Pattern(None, "/a/{x}"),
            Pattern(None, "/{x}/**"),
            Pattern(None, "/a/**"),
        ]
    )
    assert table.match("", "/a/b", "GET", NONE) == 1
    assert table.match("", "/z/b", "GET", NONE) == 0
    assert table.match("", "/a/b/c", "GET", NONE) == 3
    assert table.match("", "/z/b/c", "GET", NONE) == 2


def test_deep_paths_cost_no_more_than_the_deepest_pattern() -> None:
    """What lies below the deepest pattern is not taken apart, and still found."""
    table = _table([Pattern(None, "/a/{x}/**"), Pattern(None, "/a/{x}")])
    assert table.match("", "/a/b" + "/c" * 4000, "GET", NONE) == 0
    assert table.match("", "/a/b", "GET", NONE) == 1


@pytest.mark.parametrize(
    "raw", ["/pub/../adm", "/pub/%2e%2e/adm", "//adm", "/adm;x", "/pub%2Fx", "//pub/adm"]
)
def test_paths_that_straddle_routes_are_refused(raw: str) -> None:
    """A path that origins could read as that of another route is a 400."""
    table = _table([Pattern(None, "/adm"), Pattern(None, "/pub/**"), Pattern(None, "/**")])
    with pytest.raises(BadRequestError):
        table.find("", raw, "GET", NONE)


@pytest.mark.parametrize(
    "raw", ["/pub/a/../b", "/pub//a", "/pub/a%2Fb", "/pub/a;v=1/b", "/p%75b/x", "/pub/./a"]
)
def test_odd_paths_within_one_route_pass(raw: str) -> None:
    """An unusual spelling is no offence where every reading belongs to the same route."""
    table = _table([Pattern(None, "/adm"), Pattern(None, "/pub/**"), Pattern(None, "/**")])
    assert table.find("", raw, "GET", NONE) == 1


def test_unexposed_readings_are_refused() -> None:
    """A path that an origin could read as one without any route is refused, too."""
    table = _table([Pattern(None, "/files/{name}")])
    with pytest.raises(BadRequestError):
        table.find("", "/files/a%2Fsecret", "GET", NONE)
    with pytest.raises(BadRequestError):
        table.find("", "/files%2Fsecret", "GET", NONE)
    with pytest.raises(BadRequestError):
        _table([Pattern(None, "/files/**")]).find("", "/files/../secret", "GET", NONE)
    assert table.find("", "/other%2Fsecret", "GET", NONE) is None


def test_get_is_head_too() -> None:
    """A HEAD request has the same limits as a GET."""
    table = _table([Pattern(None, "/pay", ("GET",)), Pattern(None, "/**")])
    assert table.match("", "/pay", "HEAD", NONE) == 0
    apart = [Pattern(None, "/pay", ("GET",)), Pattern(None, "/pay", ("HEAD",))]
    assert _table(apart).match("", "/pay", "HEAD", NONE) == 1
    assert _table(apart[:1]).methods("", "/pay", NONE) == {"GET", "HEAD"}


@given(PATTERNS, PATTERNS, REQUESTS)
def test_patterns_that_take_one_request_may_meet(
    one: Pattern, other: Pattern, request: Request
) -> None:
    """Whatever it is; so those that may not meet have none in common."""
    host, path, method, headers = request
    found = [
        _table([pattern]).match(host, canonical_path(path), method, headers)
        for pattern in (one, other)
    ]
    if None not in found:
        assert may_meet(one, other)
        assert may_meet(other, one)


def test_patterns_that_may_not_meet() -> None:
    """Other hosts, other paths and other methods."""
    for one, other in (
        (Pattern("a.test", "/"), Pattern("b.test", "/")),
        (Pattern("*.a.test", "/"), Pattern("a.test", "/")),
        (Pattern(None, "/v1/**"), Pattern(None, "/v2/x")),
        (Pattern(None, "/v1/{id}"), Pattern(None, "/v1/")),
        (Pattern(None, "/v1/{id}"), Pattern(None, "/v1/a/b")),
        (Pattern(None, "/a", ("GET",)), Pattern(None, "/a", ("POST", "PUT"))),
    ):
        assert not may_meet(one, other)
        assert not may_meet(other, one)


def test_methods_of_a_path_as_it_was_sent() -> None:
    """`Allow` is the same for every spelling of a path."""
    table = _table([Pattern(None, "/pay", ("POST",))])
    assert table.find("", "/p%61y", "GET", NONE) is None
    assert table.methods("", "/p%61y", NONE) == {"POST"}


def test_a_table_says_whether_headers_matter() -> None:
    """Only with a header condition somewhere can equal hosts, paths and methods part ways."""
    assert not _table([Pattern(None, "/a", ("GET",))]).has_conditions
    assert _table([Pattern(None, "/a"), Pattern(None, "/b", (), (("x", "*"),))]).has_conditions
    assert _table([Pattern(None, "/a", sender=Sender(("office",)))]).has_conditions


def test_conditions_on_senders_that_nobody_can_judge_are_not_met() -> None:
    """Without the whole request, or without their compiled form, the next route is taken."""
    office = Pattern(None, "/a", ("GET",), sender=Sender(("office",)))
    anyone = Pattern(None, "/a", ("POST",))
    table = RouteTable([(office, 1), (anyone, 2)], {office.sender: lambda _: True})
    assert table.match("", "/a", "GET", NONE, VIEW) == 1
    assert table.match("", "/a", "GET", NONE) is None
    assert table.methods("", "/a", NONE) == {"POST"}
    assert table.methods("", "/a", NONE, VIEW) == {"GET", "HEAD", "POST"}
    assert RouteTable([(office, 1)]).match("", "/a", "GET", NONE, VIEW) is None


def test_header_fields_of_other_senders_may_have_any_values() -> None:
    """Whether a field has several values matters only to those for whom the route is."""
    sender = Sender(("office",))
    pattern = Pattern(None, "/a", (), (("x", "1"),), sender)
    twice = CIMultiDict([("x", "1"), ("x", "2")])
    table = RouteTable([(pattern, 1)], {sender: lambda _: False})
    assert table.match("", "/a", "GET", twice, VIEW) is None
    table = RouteTable([(pattern, 1)], {sender: lambda _: True})
    with pytest.raises(BadRequestError, match="several values"):
        table.match("", "/a", "GET", twice, VIEW)


def test_an_empty_table_matches_nothing() -> None:
    """Without routes there is no route, and no allowed method."""
    table = _table([])
    assert table.match("a.test", "/", "GET", NONE) is None
    assert table.methods("a.test", "/", NONE) == frozenset()


def test_a_condition_looks_at_all_lines() -> None:
    """A forged line next to the real one selects no route, neither before nor after it."""
    table = _table([Pattern(None, "/a", (), (("x-tier", "gold"),)), Pattern(None, "/a")])
    for values, expected in ((("gold",), 0), (("gold", "gold"), 0), (("free", "none"), 1)):
        headers = CIMultiDict(("X-Tier", value) for value in values)
        assert table.match("", "/a", "GET", headers) == expected
    for lines in (("gold", "free"), ("free", "gold"), ("", "gold")):
        headers = CIMultiDict(("X-Tier", value) for value in lines)
        with pytest.raises(BadRequestError, match="x-tier") as caught:
            table.match("", "/a", "GET", headers)
        assert caught.value.status == 400
