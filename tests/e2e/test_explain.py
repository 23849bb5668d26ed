"""`sluice explain` says what becomes of a request; a running gateway does the same with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import redis

from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.mariadb import MariaDB
from tests.processes import PYTHON_PATH, free_port

ROUTES: Final = """\
listen: 127.0.0.1:8080
trusted_proxies: [10.0.0.0/8]
routes:
  /v1/**: {upstream: api, policies: [address]}
  POST /v1/pay: {upstream: api, limit: 2/h per header:X-API-Key, strip_prefix: /v1}
  /v1/pay: {upstream: api, policies: [address, key]}
  "/users/{id}": {respond: a user, headers: {X-Tier: gold}}
  /users/**: {upstream: api, policies: [strict]}
  /clubs/{id}: {upstream: api, limit: 2/h per path:id}
  api.example.com/**: {redirect: "https://example.com{path}"}
  "*.example.com/**": {upstream: api}
upstreams: {api: http://127.0.0.1:9000}
policies:
  address: [10/s burst 20, 1000/h]
  key: {limit: 1/h per header:X-API-Key, queue: {max: 10, max_wait: 3h}}
  strict: {limit: 5/m per header:X-User, if_missing: reject}
"""


def explained(file: Path, *arguments: str, status: int = 0) -> str:
    """What the command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "explain", "-c", str(file), *arguments],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    if status == 0:
        assert not done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with routes of all kinds."""
    path = tmp_path / "sluice.yaml"
    path.write_text(ROUTES)
    return path


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ("/v1/pay",),
            [
                "Client: 127.0.0.1 (the address of the connection).",
                "Route: /v1/pay.",
                "  /v1/** matches too, but /v1/pay names its path more exactly.",
                "  Not POST /v1/pay: it is for POST only.",
                "  Not /users/{id}: it is for path /users/{id}.",
                "  Not api.example.com/**: it is for host api.example.com.",
                "    Key: 127.0.0.1. Cost: 1.",
                "    Key: ip=127.0.0.1. Cost: 1.",
                "Verdict: if its limits admit it, forwarded to api as /v1/pay.",
            ],
        ),
        (
            ("POST", "/v1/pay?x=1", "-H", "X-API-Key: a", "--from", "192.0.2.1"),
            [
                "Client: 192.0.2.1 (the address of the connection).",
                "Route: POST /v1/pay.",
                "  /v1/pay matches too, but POST /v1/pay names methods.",
                "    Key: header:x-api-key=a. Cost: 1.",
                "Verdict: if its limits admit it, forwarded to api as /pay?x=1.",
            ],
        ),
        (
            ("/v1/x", "-H", "X-Forwarded-For: 203.0.113.9", "--from", "10.1.2.3"),
            ["Client: 203.0.113.9 (as a trusted proxy says).", "    Key: 203.0.113.9. Cost: 1."],
        ),
        (
            ("/v1/x", "-H", "X-Forwarded-For: 203.0.113.9", "--from", "192.0.2.1"),
            ["Client: 192.0.2.1 (the address of the connection)."],
        ),
        (
            ("/users/7", "-H", "X-Tier: gold"),
            [
                "Route: /users/{id}.",
                "  /users/** matches too, but /users/{id} names its path more exactly.",
                "Limits: none.",
                "Verdict: answered by the gateway.",
            ],
        ),
        (
            ("/clubs/%61%C3%A9",),
            ["Route: /clubs/{id}.", "    Key: path:id=a%C3%A9. Cost: 1."],
        ),
        (
            ("/users/7", "-H", "X-Tier: lead"),
            [
                "Route: /users/**.",
                "  Not /users/{id}: it requires another value of the field x-tier.",
                (
                    "The request is answered with 400: "
                    "The request lacks what it is counted by: header:x-user."
                ),
            ],
        ),
        (
            ("https://api.example.com/x",),
            [
                "Route: api.example.com/**.",
                "  *.example.com/** matches too, but api.example.com/** names its host.",
            ],
        ),
        (
            ("/nowhere",),
            [
                "The request is answered with 404: No route matches this request.",
                "  Not /v1/**: it is for path /v1/**.",
            ],
        ),
        (
            ("/v1/../users",),
            ["The request is answered with 400: The path can be read as that of different routes."],
        ),
        (("BREW", "/v1/x"), ["The request is answered with 501: This method is not known."]),
    ],
)
def test_the_route_and_why_not_the_others(
    file: Path, arguments: tuple[str, ...], lines: list[str]
) -> None:
    """It names the client, the route, what keeps the others from it, the keys and the outcome."""
    told = explained(file, *arguments).splitlines()

    assert [line for line in lines if line not in told] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "required: REQUEST"),
        (("GET", "/x", "/y"), "'/y' is one word too many"),
        (("v1/pay",), "'v1/pay' is not a path"),
        (("GET", "/a b"), "must be escaped"),
        (("G@T", "/a"), "'G@T' is not a method"),
        (("/a", "-H", "no colon"), "'no colon' is not a header field"),
        (("/a", "-H", "X: 1\r\nY: 2"), "is not a header field"),
        (("/a", "--from", "me"), "'me' is not an IP address"),
        (("ftp://h/a",), "is not a URL of http or https"),
    ],
)
def test_what_is_no_request(file: Path, arguments: tuple[str, ...], message: str) -> None:
    """A command line that is no request ends with the mistake, and a hint."""
    told = explained(file, *arguments, status=2)

    assert message in told
    assert "hint: " in told


def test_of_many_routes_only_those_of_the_path_are_listed(tmp_path: Path) -> None:
    """Thousands of routes are not a page of sentences."""
    routes = "".join(f"  /r{number}: {{respond: x}}\n" for number in range(200))
    path = tmp_path / "sluice.yaml"
    path.write_text(f"routes:\n{routes}  POST /r7: {{respond: y}}\n  /**: {{respond: z}}\n")

    told = explained(path, "/r7").splitlines()

    assert told[1:5] == [
        "Route: /r7.",
        "  Not POST /r7: it is for POST only.",
        "  /** matches too, but /r7 names its path more exactly.",
        "  Not 199 others: they are for other paths.",
    ]


@pytest.fixture(params=["redis", "mysql"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of a store that a command can ask beside a gateway."""
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    database: MariaDB = request.getfixturevalue("mariadb")
    return database.url


def test_what_is_left_is_told_and_nothing_is_spent(
    store: str, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """It says what the store says, however often, and the gateway admits as much as before."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"store: {{ url: '{store}', deadline: 20s }}\ndomain: d{free_port()}\n"
            f"upstreams: {{ web: '{upstream.url}' }}\n"
            "routes:\n"
            "  /keys: { upstream: web, limit: 3/h per header:X-API-Key }\n"
            "  /queue: { upstream: web, policies: [patient] }\n"
            "policies:\n"
            "  patient: { limit: 1/h per all, queue: { max: 10, max_wait: 2h } }\n"
        )
        file = tmp_path / f"gateway-{gateway.port}.yaml"
        request = ("GET", "/keys", "-H", "X-API-Key: a")
        assert get(gateway.port, "/keys", "X-API-Key: a").status == 200

        for _ in range(4):
            told = explained(file, *request)
            assert "    Passes: 2 of 3 left, all of it in " in told
            assert "Verdict: forwarded to web as /keys." in told
        found = [get(gateway.port, "/keys", "X-API-Key: a").status for _ in range(3)]
        assert found == [200, 200, 429]
        told = explained(file, *request)
        assert "    Over the limit: 0 of 3 left, all of it in " in told
        assert "Refused with 429." in told
        assert "Verdict: refused with 429 by policy /keys." in told
        assert "3 of 3 left" in explained(file, "/keys", "-H", "X-API-Key: b")
        assert get(gateway.port, "/queue").status == 200
        told = explained(file, "/queue")
        assert "Waits for its turn, or is refused if that takes 2 h." in told
        assert "Verdict: waits for its turn, then forwarded to web as /queue." in told


def test_a_store_that_is_away_is_told(tmp_path: Path) -> None:
    """Without its store it still names the route and the keys, and fails."""
    file = tmp_path / "sluice.yaml"
    file.write_text(
        f"store: redis://127.0.0.1:{free_port()}\n"
        "routes: { /a: { respond: x, limit: 5/m } }\nlisten: 127.0.0.1:8080\n"
    )

    told = explained(file, "/a", status=1)

    assert "Route: /a." in told
    assert "    Key: 127.0.0.1. Cost: 1." in told
    assert "did not respond" in told


def test_it_leaves_nothing_in_the_store(redis_url: str, tmp_path: Path) -> None:
    """After a command that only looks, the store has no key of it."""
    domain = f"d{free_port()}"
    file = tmp_path / "sluice.yaml"
    file.write_text(
        f"store: '{redis_url}'\ndomain: {domain}\n"
        "routes: { /a: { respond: x, limit: 5/m } }\nlisten: 127.0.0.1:8080\n"
    )

    assert "5 of 5 left" in explained(file, "/a")

    with redis.Redis.from_url(redis_url) as client:
        assert [key for key in client.scan_iter(count=1000) if domain.encode() in key] == []


def test_what_is_only_tried_out(tmp_path: Path) -> None:
    """Nothing that is not enforced refuses in the verdict."""
    file = tmp_path / "sluice.yaml"
    file.write_text(
        "listen: 127.0.0.1:8080\nroutes: { /a: { respond: x, policies: [shadow] } }\n"
        "policies: { shadow: { limit: 1/h, mode: shadow } }\n"
    )

    told = explained(file, "/a")

    assert "    Not enforced: it is only tried out.\n" in told
    assert "Verdict: answered by the gateway.\n" in told
