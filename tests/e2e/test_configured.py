"""What is written in a configuration, met from outside: processes, stores and upstreams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import redis

from tests.e2e.raw import RecordingUpstream, get, header_values
from tests.e2e.signs import wait_for_metric
from tests.processes import PYTHON_PATH, Gateway
from tests.servers import RedisServer

ROUTES: Final = 'routes: {/**: {upstream: "http://127.0.0.1:9000"}}\n'
USER: Final = "svc@corp:eu/1%41"


def _sluice(*arguments: str | Path, env: dict[bytes, bytes]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *map(os.fsencode, arguments)],
        env={**os.environb, b"PYTHONPATH": os.fsencode(PYTHON_PATH), **env},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('store: "redis://$REDIS_HOST:6379/0"\n', b"write ${REDIS_HOST}"),
        ('store: "redis://{{ .Values.redis }}:6379/0"\n', b"write variables as ${NAME}"),
        ('store: "redis+sentinel://$S1,$S2/main"\n', b"write ${S1}"),
        ('store: "throttr+v5://h ?size=8"\n', b"has a blank in it"),
        ('store: "redis://:${LATIN}@redis"\n', b"the variable LATIN is not UTF-8"),
    ],
)
def test_a_store_that_cannot_be_is_a_problem(
    command: str, text: str, said: bytes, tmp_path: Path
) -> None:
    """With its place and its remedy, before a gateway limits by itself or ends in a traceback."""
    path = tmp_path / "sluice.yaml"
    path.write_text(text + ROUTES)

    done = _sluice(command, path, env={b"LATIN": b"caf\xe9"})

    assert done.returncode == 1
    assert b"sluice.yaml:1:" in done.stderr
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_path_need_not_be_utf8(tmp_path: Path) -> None:
    """A file with any name is checked, whatever the terminal can show of it."""
    path = os.fsencode(tmp_path) + b"/caf\xe9.yaml"
    Path(os.fsdecode(path)).write_text(ROUTES)

    done = _sluice("check", os.fsdecode(path), env={b"PYTHONIOENCODING": b"ascii"})

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\\udce9.yaml: OK" in done.stdout


def test_what_a_variable_holds_is_sent_as_it_is(tmp_path: Path) -> None:
    """Braces in a secret are no variables of a template, and reach the upstream."""
    with RecordingUpstream() as upstream:
        gateway = Gateway.start(
            f"""
routes:
  /**:
    upstream: {upstream.url}
    request_headers: {{ set: {{ X-Secret: "${{TOK}}", X-Both: "{{method}}-${{TOK}}" }} }}
""",
            tmp_path,
            {"TOK": "abc{method}def{"},
        )
        get(gateway.port)
        gateway.stop()

        assert header_values(upstream.heads[0], "X-Secret") == ["abc{method}def{"]
        assert header_values(upstream.heads[0], "X-Both") == ["GET-abc{method}def{"]


def test_a_user_by_variable_is_let_in(tmp_path: Path) -> None:
    """Whatever it is made of, and whatever the password is."""
    server = RedisServer(tmp_path)
    server.start()
    with redis.Redis.from_url(server.url) as client:
        rights = ["on", ">p@ss:/w", "allcommands", "allkeys", "allchannels"]
        client.execute_command("ACL", "SETUSER", USER, *rights)
    host = server.url.partition("://")[2]
    gateway = Gateway.start(
        f"store: {{ url: 'redis://${{RU}}:${{RP}}@{host}', deadline: 20s }}\n"
        "routes: { /**: { respond: here, limit: 5/h } }\n",
        tmp_path,
        {"RU": USER, "RP": "p@ss:/w"},
    )
    try:
        assert wait_for_metric(gateway, "sluice_store_ready", 1)
        assert get(gateway.port).status == 200
    finally:
        gateway.stop()
        server.stop()


def test_words_are_explained_and_secrets_are_not(tmp_path: Path) -> None:
    """A user called as the database masks nothing; a token by variable is shown as its variable."""
    path = tmp_path / "sluice.yaml"
    path.write_text(
        "store: mysql://throttlex:${P}@db/throttlex\n"
        "routes:\n  /**:\n    upstream: http://a\n    limit: 5/s\n"
        "    request_headers: { set: { X-T: '${TOK}' } }\n"
    )

    done = _sluice("check", "--explain", path, env={b"P": b"policy", b"TOK": b"t0psecret"})

    assert b"database throttlex" in done.stdout
    assert b"limited by policy /**" in done.stdout
    assert b"X-T: ${TOK}" in done.stdout
    assert b"t0psecret" not in done.stdout + done.stderr
