"""Pages of other sites read the gateway's own responses, and what upstreams allow themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.raw import Answer, RawConnection, RawUpstream, get
from tests.processes import Gateway

CONFIG = """
defaults:
  cors: {{ origins: ["https://app.example.com", "https://*.example.org"], credentials: true }}
error_pages: {{}}
routes:
  /up/**: {{ upstream: {url}, limit: 1000/h }}
  /free/**: {{ upstream: {url} }}
  /limited: {{ respond: ok, limit: 1/h }}
  /open: {{ respond: ok, limit: 1/h, cors: "*" }}
  /off: {{ respond: ok, limit: 1/h, cors: off }}
  /down: {{ upstream: "http://127.0.0.1:1" }}
  /old: {{ redirect: /new }}
  /edited: {{ respond: ok, response_headers: {{ set: {{ Access-Control-Allow-Origin: "x" }} }} }}
  /limited-keys: {{ respond: ok, limit: "1/h per header:X-Key", if_missing: reject }}
"""
APP = "Origin: https://app.example.com"


def _serve(connection: RawConnection) -> None:
    """Allow pages to read what is under /up/own, and say nothing of the rest."""
    while head := connection.read_head():
        allowing = b"Access-Control-Allow-Origin: https://other.test\r\n" if b"own" in head else b""
        connection.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % allowing)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all cases."""
    with RawUpstream(_serve) as upstream:
        gateway = Gateway.start(CONFIG.format(url=upstream.url), tmp_path_factory.mktemp("cors"))
        yield gateway
        gateway.stop()


def cors_of(answer: Answer) -> dict[str, str]:
    """The fields that browsers look at; each is there once."""
    found = {
        name: value for name, value in answer.fields if name.startswith(("Access-Control-", "Vary"))
    }
    assert len({name.lower() for name, _ in answer.fields}) == len(answer.fields)
    return {name.removeprefix("Access-Control-"): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("path", "status"),
    [("/limited", 429), ("/down", 502), ("/nowhere", 404), ("/old", 308), ("/limited-keys", 400)],
)
def test_a_page_can_read_what_the_gateway_answers(gateway: Gateway, path: str, status: int) -> None:
    """A refusal with its wait, an error with or without a route, a redirect."""
    get(gateway.port, path)
    answer = get(gateway.port, path, APP)
    assert answer.status == status
    found = cors_of(answer)
    assert found["Allow-Origin"] == "https://app.example.com"
    assert found["Allow-Credentials"] == "true"
    assert {"Retry-After", "RateLimit", "X-RateLimit-Reset"} <= {
        *found["Expose-Headers"].split(", ")
    }
    assert found["Vary"] == ("Origin" if status == 308 else "Accept, Origin")

    stranger = get(gateway.port, path, "Origin: https://evil.test")
    assert cors_of(stranger) == {"Vary": found["Vary"]}
    assert cors_of(get(gateway.port, path)) == {"Vary": found["Vary"]}
    below = get(gateway.port, path, "Origin: https://a.b.example.org", "Accept: text/html")
    assert cors_of(below)["Allow-Origin"] == "https://a.b.example.org"


def test_a_route_has_its_own_word(gateway: Gateway) -> None:
    """It replaces that of the defaults; header edits come last."""
    for path in ("/open", "/off"):
        get(gateway.port, path)
    opened = get(gateway.port, "/open", "Origin: https://any.test")
    assert (opened.status, cors_of(opened)["Allow-Origin"]) == (429, "*")
    assert "Allow-Credentials" not in cors_of(opened)
    assert cors_of(opened)["Vary"] == "Accept"
    assert cors_of(get(gateway.port, "/off", APP)) == {"Vary": "Accept"}
    assert cors_of(get(gateway.port, "/edited", APP))["Allow-Origin"] == "x"


def test_upstreams_speak_for_themselves(gateway: Gateway) -> None:
    """Nothing is allowed in their place; what they allow includes the gateway's own fields."""
    assert cors_of(get(gateway.port, "/up/other", APP)) == {}
    own = cors_of(get(gateway.port, "/up/own", APP))
    assert own.keys() == {"Allow-Origin", "Expose-Headers"}
    assert own["Allow-Origin"] == "https://other.test"
    assert "X-RateLimit-Remaining" in own["Expose-Headers"]
    assert cors_of(get(gateway.port, "/free/own", APP)).keys() == {"Allow-Origin"}
    assert cors_of(get(gateway.port, "/up/own")).keys() == {"Allow-Origin"}


def test_a_repeated_refusal_is_of_the_page_that_asked(gateway: Gateway) -> None:
    """Refusals may be sent again, but only for the same bytes."""
    for origin in ("https://app.example.com", "https://x.example.org") * 3:
        answer = get(gateway.port, "/limited", f"Origin: {origin}")
        assert cors_of(answer)["Allow-Origin"] == origin
