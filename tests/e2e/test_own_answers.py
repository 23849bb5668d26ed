"""Redirects, fixed answers and the forms of errors, through the front door."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.raw import RawClient, RawConnection, RawUpstream, get
from tests.processes import Gateway

BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

CONFIG = """
error_pages:
  404: {{ html: "<h1>{{status}} {{reason}}</h1>", problem: '{{"code": {{status}}}}' }}
  5xx: {{ text: "Sorry, {{reason}}\\n", intercept: true }}
policies:
  throttlex: {{ throttlex: {{ type: SLIDING_WINDOW, capacity: 1, windowSeconds: 3600 }} }}
  said: {{ limit: 1/h }}
routes:
  /up/**: {{ upstream: {url} }}
  /as-it-is/**: {{ upstream: {url}, error_pages: off }}
  /own/**: {{ upstream: {url}, error_pages: {{ 503: {{ text: "own\\n", intercept: on }} }} }}
  /down: {{ upstream: "http://127.0.0.1:1" }}
  /limited: {{ respond: ok, limit: 1/h }}
  /worded: {{ respond: ok, limit: 1/h, on_limit: {{ body: "slow down\\n" }} }}
  /throttlex: {{ respond: ok, policies: throttlex }}
  /said:
    respond: ok
    policies: said
    error_pages:
      429:
        html: "<p>{{title}}: {{retry_after}} s. {{advice}}"
        text: "{{advice}}\\n"
        problem: '{{"title": "{{title}}", "after": {{retry_after}}}}'
      503: "<p>{{advice}}"
  /https/**: {{ redirect: "https://{{host}}{{path}}" }}
  /slash/**: {{ redirect: "{{path}}/" }}
  "/id/{{id}}": {{ redirect: {{ to: "/new/{{id}}?from=old", status: 301 }} }}
  /bare: {{ redirect: {{ to: https://x.test, status: 307, keep_query: false }} }}
  /ok:
    respond: {{ body: "<p>hello</p>", type: text/html }}
    response_headers: {{ set: {{ X-Frame-Options: DENY }} }}
  /none: {{ respond: 204 }}
  /gone: {{ respond: {{ status: 410, body: "gone\\n" }} }}
"""
SECRET = b"Retry-After: 7\r\nX-Secret: 1\r\nContent-Length: 6\r\n\r\nsecret"


def _serve(connection: RawConnection) -> None:
    """Answer with the status that the path ends with."""
    while head := connection.read_head():
        status = head.split(b" ", 2)[1].rpartition(b"/")[2]
        ends = b"/close/" in head
        end = b"Connection: close\r\n" if ends else b""
        connection.send(b"HTTP/1.1 %b Whatever\r\n%b%b" % (status, end, SECRET))
        if ends:
            return


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all cases."""
    with RawUpstream(_serve) as upstream:
        gateway = Gateway.start(
            CONFIG.format(url=upstream.url), tmp_path_factory.mktemp("own-answers")
        )
        yield gateway
        gateway.stop()


@pytest.mark.parametrize(
    ("asked", "status", "location"),
    [
        ("/https/a/%2e?b=c&d", 308, "https://gateway.test/https/a/%2e?b=c&d"),
        ("/https//evil.test/..%20", 308, "https://gateway.test/https//evil.test/..%20"),
        ("/id/%41b?x=1", 301, "/new/%41b?from=old"),
        ("/bare?x=1", 307, "https://x.test"),
        ("/slash/x?y", 308, "/slash/x/?y"),
        ('/slash/x?"<y>', 308, "/slash/x/?%22%3Cy%3E"),
    ],
)
def test_a_redirect_leads_where_it_says(
    gateway: Gateway, asked: str, status: int, location: str
) -> None:
    """Path, query and parameters are put in as they were sent; the query goes along."""
    answer = get(gateway.port, asked)

    assert (answer.status, answer.field("Location")) == (status, location)
    assert answer.body == b""


@pytest.mark.parametrize(
    "asked", ["//evil.test/..", "//evil.test/slash/../slash/x", "/slash/../..//evil.test"]
)
def test_no_path_leads_to_another_host(gateway: Gateway, asked: str) -> None:
    """`//evil.test` in a path is never the beginning of where a client is sent."""
    answer = get(gateway.port, asked)

    assert answer.status in {400, 404}
    assert answer.all("Location") == []


@pytest.mark.parametrize("asked", ["/x/../id/a", "/id/a;b", "/id/a%2Fb"])
def test_a_parameter_is_one_segment_in_every_reading(gateway: Gateway, asked: str) -> None:
    """A path that could be taken apart in several ways is refused."""
    assert get(gateway.port, asked).status == 400


def test_fixed_answers(gateway: Gateway) -> None:
    """Status, body and type are as configured; HEAD has no body, 204 no length."""
    with RawClient(gateway.port) as client:
        answer = client.get("/ok")
        assert (answer.status, answer.body) == (200, b"<p>hello</p>")
        assert answer.field("Content-Type") == "text/html"
        assert answer.field("X-Frame-Options") == "DENY"
        answer = client.get("/ok", method="HEAD")
        assert (answer.field("Content-Length"), answer.body) == ("12", b"")
        answer = client.get("/none")
        assert (answer.status, answer.all("Content-Length")) == (204, [])
        answer = client.get("/gone", BROWSER)
        assert (answer.status, answer.body) == (410, b"gone\n")


def test_limits_come_first(gateway: Gateway) -> None:
    """A fixed answer counts, and is refused when it is over its limit, in the client's form."""
    assert get(gateway.port, "/limited").body == b"ok"
    with RawClient(gateway.port) as client:
        pages = [client.get("/limited", BROWSER) for _ in range(3)]
        problem = client.get("/limited")
    assert {page.status for page in (*pages, problem)} == {429}
    assert {page.body for page in pages} == {pages[0].body}
    assert b"429 Too Many Requests" in pages[0].body
    assert pages[0].field("Retry-After")
    assert json.loads(problem.body)["status"] == 429


def test_a_policy_that_says_what_it_answers_is_heeded(gateway: Gateway) -> None:
    """A text of the policy's own is no problem document, and stays."""
    get(gateway.port, "/worded")

    assert get(gateway.port, "/worded", BROWSER).body == b"slow down\n"


def test_a_browser_is_told_when_to_return(gateway: Gateway) -> None:
    """In words, on a page that loads nothing, and as the field says it."""
    get(gateway.port, "/limited")
    page = get(gateway.port, "/limited", BROWSER)
    assert (page.status, page.field("Content-Type")) == (429, "text/html; charset=utf-8")
    assert 3480 < int(page.field("Retry-After")) <= 3600
    assert b"Please try again in 60 minutes." in page.body
    assert b"<script" not in page.body
    assert b"//" not in page.body
    assert page.field("Content-Security-Policy").startswith("default-src 'none'; style-src 'sha256")
    assert page.field("Vary") == "Accept"
    assert page.field("Cache-Control") == "no-store"
    text = get(gateway.port, "/limited", "Accept: text/plain")
    assert text.body == b"429 Too Many Requests\nPlease try again in 60 minutes.\n"
    assert text.all("Content-Security-Policy") == []


def test_what_a_page_can_say(gateway: Gateway) -> None:
    """What went wrong, the seconds, and a sentence with them, in each form."""
    assert get(gateway.port, "/said").status == 200
    page = get(gateway.port, "/said", BROWSER)
    seconds = page.field("Retry-After")
    assert page.body.decode() == (
        f"<p>Too many requests: {seconds} s. Please try again in 60 minutes."
    )
    assert page.all("Content-Security-Policy") == []
    text = get(gateway.port, "/said", "Accept: text/plain")
    assert text.body == b"Please try again in 60 minutes.\n"
    document = get(gateway.port, "/said")
    assert json.loads(document.body) == {
        "title": "Too many requests",
        "after": int(document.field("Retry-After")),
    }


def test_throttlex_refuses_browsers_with_a_page(gateway: Gateway) -> None:
    """Its own clients get its JSON, as ever."""
    assert get(gateway.port, "/throttlex").status == 200
    for accept in ("X: y", "Accept: */*", "Accept: application/json"):
        answer = get(gateway.port, "/throttlex", accept)
        assert (answer.status, answer.field("Content-Type")) == (429, "application/json")
        assert json.loads(answer.body)["message"].startswith("Rate limit exceeded for key: ")
        assert answer.field("Vary") == "Accept"
    problem = get(gateway.port, "/throttlex", "Accept: application/problem+json")
    assert problem.field("Content-Type") == "application/problem+json"
    document = json.loads(problem.body)
    assert document["type"].endswith("#quota-exceeded")
    assert document["retry-after"] == int(problem.field("Retry-After"))
    assert problem.all("Cache-Control") == ["no-store"]
    page = get(gateway.port, "/throttlex", BROWSER)
    assert page.all("Cache-Control") == ["no-store"]
    assert (page.status, page.field("Content-Type")) == (429, "text/html; charset=utf-8")
    assert b"Please try again in 60 minutes." in page.body


def test_a_page_for_an_upstream_that_is_away(gateway: Gateway) -> None:
    """A browser gets a page for 502, too; it has nothing to say of when."""
    page = get(gateway.port, "/down", BROWSER)
    assert (page.status, page.all("Retry-After")) == (502, [])
    assert b"Please try again later." in page.body


@pytest.mark.parametrize(
    ("accept", "kind", "body"),
    [
        (BROWSER, "text/html; charset=utf-8", b"<h1>404 Not Found</h1>"),
        ("Accept: */*", "application/problem+json", b'{"code": 404}'),
        ("X: y", "application/problem+json", b'{"code": 404}'),
        ("Accept: text/plain", "text/plain; charset=utf-8", b"404 Not Found\n"),
        ("Accept: text/html;q=0, image/png", "application/problem+json", b'{"code": 404}'),
    ],
)
def test_errors_have_the_form_that_is_accepted(
    gateway: Gateway, accept: str, kind: str, body: bytes
) -> None:
    """HTML, text or JSON by the quality of what is asked for; caches are told."""
    answer = get(gateway.port, "/nowhere", accept)

    assert (answer.status, answer.field("Content-Type"), answer.body) == (404, kind, body)
    assert answer.field("Vary") == "Accept"


def test_an_upstream_that_is_away_has_the_page_of_its_class(gateway: Gateway) -> None:
    """502 takes the form of 5xx."""
    answer = get(gateway.port, "/down", "Accept: text/plain")

    assert (answer.status, answer.body) == (502, b"Sorry, Bad Gateway\n")


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        ("/up/503", b"Sorry, Service Unavailable\n"),
        ("/up/404", b"secret"),
        ("/up/200", b"secret"),
        ("/as-it-is/503", b"secret"),
        ("/own/503", b"own\n"),
    ],
)
def test_answers_of_upstreams_are_replaced_where_asked_for(
    gateway: Gateway, asked: str, body: bytes
) -> None:
    """With their status and what they say to programs; over a new or a used connection."""
    with RawClient(gateway.port) as client:
        for _ in range(3):
            answer = client.get(asked, "Accept: text/plain")
            assert (answer.status, answer.body) == (int(asked[-3:]), body)
            assert answer.field("Retry-After") == "7"
            assert (answer.all("X-Secret") == []) == (body != b"secret")


@pytest.mark.parametrize(
    ("status", "body"), [(503, b"Sorry, Service Unavailable\n"), (404, b"secret")]
)
def test_an_answer_is_replaced_though_its_upstream_has_left(
    gateway: Gateway, status: int, body: bytes
) -> None:
    """Whether or not it is replaced, an answer that ends a used connection is a whole one."""
    with RawClient(gateway.port) as client:
        for _ in range(3):
            assert client.get("/up/200").status == 200
            answer = client.get(f"/up/close/{status}", "Accept: text/plain")
            assert (answer.status, answer.body) == (status, body)


def test_a_body_that_is_sent_along_does_not_matter(gateway: Gateway) -> None:
    """What is redirected or replaced may have come with a body."""
    for path, status in (("/up/503", 503), ("/bare", 307)):
        with RawClient(gateway.port) as client:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\nContent-Length: 2"
            client.send(f"{head}\r\n\r\nab".encode())
            assert client.read().status == status
