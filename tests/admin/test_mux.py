"""Which requests the admin listener answers, decided without a socket."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.mux import AdminAnswer, GuardFields, Mux, Query, Resource


async def _answer(_query: Query) -> AdminAnswer:
    raise AssertionError


THING = Resource("/thing", "a thing", _answer)
ACT = Resource("/act", "an act", _answer, ("POST",))


def status_for(
    host: str,
    listen: str = "127.0.0.1",
    names: tuple[str, ...] = (),
    *,
    method: str = "GET",
    target: str = "/thing",
) -> int:
    """The status that a request gets; 200 if the resource would be read."""
    return status_of(Mux(listen, names, [THING, ACT]).find(method, target, GuardFields(host)))


def status_of(found: Resource | AdminAnswer) -> int:
    """200 for a resource, and the status of a refusal."""
    if isinstance(found, Resource):
        return 200
    assert found.content_type == "application/problem+json"
    assert isinstance(found.body, bytes)
    assert json.loads(found.body)["status"] == found.status
    return found.status


@pytest.mark.parametrize(
    ("host", "listen", "status"),
    [
        ("localhost", "127.0.0.1", 200),
        ("LOCALHOST:9901", "127.0.0.1", 200),
        ("127.0.0.1:9901", "127.0.0.1", 200),
        ("127.0.0.1:1", "127.0.0.1", 200),  # an SSH tunnel has a port of its own
        ("127.8.8.8", "127.0.0.1", 200),
        ("[::1]:9901", "127.0.0.1", 200),
        ("[::1]", "::1", 200),
        ("10.0.0.5:9901", "10.0.0.5", 200),
        ("gateway.internal:9901", "gateway.internal", 200),
        ("10.0.0.6", "10.0.0.5", 421),
        ("10.0.0.6", "0.0.0.0", 200),  # noqa: S104
        ("[2001:db8::1]:9901", "::", 200),
        ("evil.test", "0.0.0.0", 421),  # noqa: S104
        ("evil.test", "::", 421),
        ("evil.test", "127.0.0.1", 421),
        ("127.0.0.1.evil.test", "127.0.0.1", 421),
        ("localhost.evil.test", "127.0.0.1", 421),
        ("evil.test:localhost", "127.0.0.1", 421),
        ("localhost:evil", "127.0.0.1", 421),
        ("localhost@evil.test", "127.0.0.1", 421),
        ("localhost, evil.test", "127.0.0.1", 421),
        ("::1", "127.0.0.1", 421),
        ("[::1", "127.0.0.1", 421),
        ("[localhost]", "127.0.0.1", 200),
        ("2130706433", "127.0.0.1", 421),
        ("127.1", "127.0.0.1", 421),
        ("", "127.0.0.1", 400),
        (":9901", "127.0.0.1", 421),
    ],
)
def test_host_has_to_be_a_name_of_the_listener(host: str, listen: str, status: int) -> None:
    """Loopback, the configured address, and any address where all are listened on."""
    assert status_for(host, listen) == status


def test_further_names_can_be_allowed() -> None:
    """A scraper in a cluster calls the listener by the name of its service."""
    assert status_for("sluice.default.svc:9901", "10.0.0.5") == 421
    assert status_for("sluice.default.svc:9901", "10.0.0.5", ("Sluice.default.svc",)) == 200
    assert status_for("sluice.default.svc:9901", "10.0.0.5", ("*.SVC",)) == 200
    assert status_for("sluice.svc.evil.test", "10.0.0.5", ("*.svc",)) == 421
    assert status_for("svc", "10.0.0.5", ("*.svc",)) == 421


@pytest.mark.parametrize(
    ("listen", "method", "target", "status"),
    [
        ("0.0.0.0", "GET", "/health", 200),  # noqa: S104
        ("10.0.0.5", "HEAD", "/health", 200),
        ("gateway.internal", "GET", "/health", 200),
        ("10.0.0.5", "GET", "/", 421),
        ("10.0.0.5", "GET", "/thing", 421),
        ("10.0.0.5", "POST", "/health", 421),
        ("10.0.0.5", "POST", "/act", 421),
        ("127.0.0.1", "GET", "/health", 421),
        ("localhost", "GET", "/health", 421),
        ("::1", "GET", "/health", 421),
    ],
)
def test_health_is_for_all_who_can_reach_an_address_that_is_not_loopback(
    listen: str, method: str, target: str, status: int
) -> None:
    """There no name protects anything; on loopback it keeps the pages of browsers out."""
    health = Resource("/health", "a state", _answer, is_for_all=True)
    mux = Mux(listen, (), [THING, ACT, health])

    assert status_of(mux.find(method, target, GuardFields("sluice.default.svc"))) == status


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/thing", 200), ("HEAD", "/", 200), ("POST", "/act", 400)],
)
def test_without_a_host_http_1_0_may_read(method: str, target: str, status: int) -> None:
    """Health checkers of that version send none, and browsers always do."""
    mux = Mux("127.0.0.1", (), [THING, ACT])

    assert status_of(mux.find(method, target, GuardFields("", needs_host=False))) == status


@given(host=st.text())
def test_no_other_host_gets_in(host: str) -> None:
    """Arbitrary text is never taken for a name of the listener, and never an error."""
    assert status_for(host) in {400, 421} or host.lower().startswith(("localhost", "127.", "[::1]"))


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/thing", 200),
        ("HEAD", "/thing?x=1", 200),
        ("GET", "/", 200),
        ("GET", "/Thing", 404),
        ("GET", "/thing/", 404),
        ("GET", "//thing", 404),
        ("GET", "/./thing", 404),
        ("GET", "/%74hing", 404),
        ("POST", "/nothing", 404),
        ("POST", "/thing", 405),
        ("GET", "/act", 405),
        ("HEAD", "/act", 405),
        ("PUT", "/act", 405),
        ("post", "/act", 405),
        ("POST", "/act/", 404),
        ("DELETE", "/thing", 405),
        ("OPTIONS", "/thing", 405),
        ("get", "/thing", 405),
        ("OPTIONS", "*", 400),
        ("GET", "http://127.0.0.1/thing", 400),
        ("GET", "", 400),
    ],
)
def test_only_known_methods_and_only_exact_paths(method: str, target: str, status: int) -> None:
    """Each path has its methods, and no spelling of a path gets round a rule about it."""
    assert status_for("localhost", method=method, target=target) == status


def test_strangers_learn_nothing() -> None:
    """The host is judged before the path: 421 for what exists and for what does not."""
    assert status_for("evil.test", target="/thing") == 421
    assert status_for("evil.test", target="/nothing") == 421
    assert status_for("evil.test", method="POST") == 421


@pytest.mark.parametrize(("target", "allowed"), [("/thing", "GET, HEAD"), ("/act", "POST")])
def test_405_names_what_is_allowed(target: str, allowed: str) -> None:
    """As RFC 9110, section 15.5.6 asks for."""
    found = Mux("::1", (), [THING, ACT]).find("PUT", target, GuardFields("localhost"))
    assert isinstance(found, AdminAnswer)
    assert found.headers == {"Allow": allowed}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (GuardFields("localhost:9901", "application/json"), 200),
        (GuardFields("localhost:9901", "Application/JSON; charset=utf-8"), 200),
        (GuardFields("localhost:9901", "application/json", "http://localhost:9901"), 200),
        (GuardFields("localhost:9901", "application/json", "", "same-origin"), 200),
        (GuardFields("localhost:9901", "application/json", "", "none"), 200),
        # What a form, `sendBeacon` or `fetch` of any page sends without asking first.
        (GuardFields("localhost:9901"), 415),
        (GuardFields("localhost:9901", "text/plain"), 415),
        (GuardFields("localhost:9901", "application/x-www-form-urlencoded"), 415),
        (GuardFields("localhost:9901", "multipart/form-data; boundary=application/json"), 415),
        (GuardFields("localhost:9901", "text/plain, application/json"), 415),
        (GuardFields("localhost:9901", "application/json, text/plain"), 415),
        (GuardFields("localhost:9901", "application/jsonp"), 415),
        # What a browser says of the page.
        (GuardFields("localhost:9901", "application/json", "http://evil.test"), 403),
        (GuardFields("localhost:9901", "application/json", "http://localhost:9902"), 403),
        (GuardFields("localhost:9901", "application/json", "http://localhost"), 403),
        (GuardFields("localhost:9901", "application/json", "https://localhost:9901"), 403),
        (GuardFields("localhost:9901", "application/json", "null"), 403),
        (GuardFields("localhost:9901", "application/json", "", "cross-site"), 403),
        (GuardFields("localhost:9901", "application/json", "", "same-site"), 403),
        (GuardFields("localhost:9901", "application/json", "", "same-origin, cross-site"), 403),
        (GuardFields("evil.test:9901", "application/json", "http://evil.test:9901"), 421),
        (GuardFields("", "application/json"), 400),
    ],
)
def test_pages_of_other_sites_change_nothing(fields: GuardFields, status: int) -> None:
    """Only what no page can send without permission, and no browser says is of another site."""
    mux = Mux("127.0.0.1", (), [ACT])
    assert status_of(mux.find("POST", "/act", fields)) == status
    # A browser asks for permission with OPTIONS.
    assert status_of(mux.find("OPTIONS", "/act", fields)) in {405, 421, 400}


async def test_index_lists_everything() -> None:
    """The start page names every resource, with what it is."""
    index = Mux("::1", (), [THING]).find("GET", "/", GuardFields("localhost"))
    assert isinstance(index, Resource)
    answer = await index.answer(Query(""))
    assert answer.body == b"/       this list\n/thing  a thing\n"
