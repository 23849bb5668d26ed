"""Policies that count only some requests: `only`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.e2e.test_explain import explained
from tests.processes import ROOT, Gateway

CONFIG: Final = """\
trusted_proxies: 127.0.0.1
lists:
  strangers: {{ values: [198.51.100.0/24] }}
  suspects: {{ per: 'header:X-API-Key', values: [bad, worse] }}
policies:
  some:
    limit: 1/h per header:X-User
    if_missing: reject
    only:
      - strangers
      - suspects
      - DELETE
      - /login
      - preflight
      - {{ headers: {{ X-Plan: 'free*' }}, path: '/v1/{{id}}' }}
      - {{ cookies: {{ trial: 'yes-*' }} }}
    except: [203.0.113.0/24, HEAD]
routes:
  /**: {{ respond: hello, policies: some }}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that counts some requests."""
    gateway = Gateway.start(CONFIG.format(), tmp_path_factory.mktemp("only"))
    yield gateway
    gateway.stop()


ORIGIN, ASKED = "Origin: https://shop.example", "Access-Control-Request-Method: PUT"


@pytest.mark.parametrize(
    ("is_counted", "method", "path", "fields"),
    [
        (False, "GET", "/", ()),
        (False, "POST", "/login/x", ()),
        (False, "GET", "/", ("X-API-Key: good",)),
        (False, "GET", "/v1/x", ("X-Plan: paid",)),
        (False, "GET", "/v2/x", ("X-Plan: free",)),
        (False, "GET", "/", ("Cookie: trial=no",)),
        (False, "OPTIONS", "/", (ORIGIN,)),
        (False, "GET", "/", (ORIGIN, ASKED)),
        (True, "DELETE", "/", ()),
        (True, "GET", "/login", ()),
        (True, "GET", "/", ("X-Forwarded-For: 198.51.100.7",)),
        (True, "GET", "/", ("X-API-Key: bad",)),
        (True, "GET", "/v1/x", ("X-Plan: free-2",)),
        (True, "GET", "/", ("Cookie: trial=yes-1",)),
        (True, "OPTIONS", "/", (ORIGIN, ASKED)),
        # What may be read as one of them is one of them.
        (True, "GET", "//login", ()),
        (True, "GET", "/x/..;/login", ()),
        (True, "GET", "/", ("X-API-Key: bad", "X-API-Key: good")),
        (True, "GET", "/v1/x", ("X-Plan: paid", "X-Plan: free")),
        (True, "GET", "/", ("Cookie: trial=no; trial=yes-1",)),
        (True, "GET", "/", ("Cookie: trial=no; TRIAL=yes-1",)),
        (True, "GET", "/", ("Cookie: trial=no\\",)),
        (True, "OPTIONS", "/", (ORIGIN, ORIGIN, ASKED)),
        # An exception is one even then.
        (False, "DELETE", "/", ("X-Forwarded-For: 203.0.113.7",)),
        (False, "HEAD", "/login", ()),
    ],
)
def test_only_these_are_counted(
    gateway: Gateway, method: str, path: str, fields: tuple[str, ...], *, is_counted: bool
) -> None:
    """All others need no key, and have no fields about the limit."""
    answer = get(gateway.port, path, *fields, method=method)
    # One that is counted lacks its key, or cannot be read in one way.
    assert answer.status == (400 if is_counted else 200)
    if not is_counted:
        assert not any(name.startswith("RateLimit") for name, _ in answer.fields)
        return
    user = f"X-User: {method} {path} {fields}"
    found = [get(gateway.port, path, user, *fields, method=method).status for _ in range(2)]
    assert found in ([200, 429], [400, 400])


def test_explain_says_what_is_not_counted(tmp_path: Path) -> None:
    """And whether it is an exception, or just no request that the policy is for."""
    config = tmp_path / "sluice.yaml"
    config.write_text(CONFIG.format())
    not_counted = "Policy some does not count this request"
    assert f"{not_counted}: it counts only others." in explained(config, "/")
    assert f"{not_counted}: it is one of its exceptions." in explained(config, "HEAD", "/login")
    assert "Policy some: 1/h" in explained(config, "DELETE", "/", "-H", "X-User: a")


def test_the_example(start_gateway: StartGateway) -> None:
    """Of the page about configurations does what it says."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    block = re.search(r"### Counting only some requests\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    with RecordingUpstream() as upstream:
        gateway = start_gateway(re.sub(r"http://\w+:8000", upstream.url, block[1]))
        for method, path, status in (
            *[("POST", "/login", 200)] * 3,
            *[("PUT", "/users/7/password", 200)] * 2,
            ("POST", "/login", 429),
            ("PUT", "/users/8/password", 429),
            *[("GET", "/login", 200)] * 7,
        ):
            answer = get(gateway.port, path, "Content-Length: 0", method=method)
            assert answer.status == status, (method, path)
