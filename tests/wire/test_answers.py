"""Answers of every kind over real sockets, each whole, byte by byte and in random pieces.

After each the gateway must be as if nothing had been: an answer on a new connection, and on the
same one if it goes on, is its own and whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.processes import Gateway
from tests.wire.answers import ANSWERS, GET, OK, Case
from tests.wire.judge import Heard, StrictClient
from tests.wire.scripted import ScriptedOrigin, until

CANARY: Final = b"canary"
CUTS: Final = ("whole", "bytes", "random")
PATHS: Final = {name: f"/case/{number}" for number, name in enumerate(ANSWERS)}


@pytest.fixture(scope="module")
def origin() -> Iterator[ScriptedOrigin]:
    """The upstream of all cases."""
    scripts = {PATHS[name]: case.script for name, case in ANSWERS.items()}
    scripts["/canary"] = (OK + b"Content-Length: %d\r\n\r\n%b" % (len(CANARY), CANARY),)
    with ScriptedOrigin(scripts) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(origin: ScriptedOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of all cases; a traceback in its log fails the last of them."""
    running = Gateway.start(
        f"routes:\n  /**: {{ upstream: {origin.url} }}\n", tmp_path_factory.mktemp("gateway")
    )
    yield running
    running.stop()


def sing(client: StrictClient) -> None:
    """Ask for the canary."""
    heard = client.ask(GET % b"/canary")
    assert (heard.status, heard.body, heard.is_whole) == (200, CANARY, True)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_clients_hear(gateway: Gateway, origin: ScriptedOrigin, name: str) -> None:
    """The answer as the table has it, and nobody else hears of it."""
    # Beyond a limit a hundred thousand pieces show no more than a thousand.
    for cut in CUTS if ANSWERS[name].pieces else ("whole", "random"):
        origin.cut = cut
        hear(gateway, origin, ANSWERS[name], PATHS[name])


def hear(gateway: Gateway, origin: ScriptedOrigin, case: Case, path: str) -> None:
    """Run one case, and look at what is left."""
    with StrictClient(gateway.port) as client, StrictClient(gateway.port) as other:
        before = len(origin.all(path))
        heard = client.ask(case.request % path.encode())
        keeps_alive = compare(heard, case)
        asked = origin.all(path)[before:]
        assert 1 <= len(asked) <= case.asked
        if not case.reuses:
            # Bytes behind an answer may come when it is over already.
            until(lambda: asked[-1].connection in origin.ended)
        if keeps_alive:
            sing(client)
        else:
            assert client.is_over()
        sing(other)
    is_reused = origin.all("/canary")[-1].connection == asked[-1].connection
    assert is_reused == case.reuses


def compare(heard: Heard, case: Case) -> bool:
    """Hold an answer against the table; returns whether the client's connection goes on."""
    if not case.is_whole:
        # It may have broken off before anything of it was passed on.
        assert heard.status in (0, 200) if not heard.is_whole else heard.status == 502
        return heard.is_whole and b"HTTP/1.1" in case.request
    assert heard.is_whole
    assert heard.status == case.status
    assert tuple(status for status, _ in heard.interim) == case.interim
    for status, fields in heard.interim:
        assert fields in ([], [(b"link", b"</a>; rel=preload")]), status
    if heard.status == 502:
        assert json.loads(heard.body)["error"] == case.body.decode()
    else:
        assert heard.body == case.body
        assert len(heard.all(b"date")) == 1
    for field, values in case.fields.items():
        assert heard.all(field) == values, field
    assert tuple(heard.trailers) == case.trailers
    return case.keeps_alive
