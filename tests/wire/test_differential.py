"""The same bytes to servers of different make: none sees a request that the others do not.

Requests that are right, wrong and on the border between go through one gateway to the recording
origin, whose bytes two parsers agree on, and through another to nginx and to gunicorn, which
read for themselves and say in their access logs what they read.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.processes import Gateway, ServerProcess, answers, free_port
from tests.wire.changed_requests import POST_WITH_TRAILERS, some
from tests.wire.judge import StrictClient
from tests.wire.origin import OracleOrigin
from tests.wire.requests import CASES

SEED: Final = 4
MUTATIONS: Final = 150
UNFINISHED: Final = frozenset({"400", "408", "499"})
"""What servers log for a request that was broken off."""

_NGINX: Final = """\
daemon off;
{user}
worker_processes 1;
pid {root}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 256; }}
http {{
    log_format read escape=none "$status $request_method $request_uri";
    access_log {root}/read.log read;
    large_client_header_buffers 8 64k;
    client_max_body_size 0;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location = /ready {{ access_log off; return 200 "ready"; }}
        # A body is read as a whole before it is passed on.
        location / {{ proxy_pass http://unix:{root}/inner.sock; }}
    }}
    server {{
        listen unix:{root}/inner.sock;
        access_log off;
        return 200 "read";
    }}
}}
"""

_APPLICATION: Final = '''\
"""Reads every body, so that the next request begins where this one ends."""


def application(environ, start_response):
    body = environ["wsgi.input"].read()
    is_short = len(body) < int(environ.get("CONTENT_LENGTH") or 0)
    start_response("400 Short" if is_short else "200 OK", [("Content-Length", "4")])
    return [b"read"]
'''


def corpus() -> list[bytes]:
    """The cases of the table, alone and behind a request with trailers, and some mutations."""
    table = [case.sent for case in CASES.values() if b"HEAD" not in case.sent]
    table = [sent for sent in table if b"/admin" not in sent]
    behind = [POST_WITH_TRAILERS + sent for sent in table if len(sent) < 1_000]
    return table + behind + some(SEED, MUTATIONS)


def start_nginx(folder: Path) -> tuple[str, ServerProcess]:
    """Nginx that answers anything with 200; its url and its process."""
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_NGINX.format(root=folder, port=port, user=user))
    command = ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    path = {"PATH": f"{os.environ['PATH']}:/usr/sbin"}
    server = ServerProcess("nginx", command, folder, lambda: answers(port, "/ready"), path)
    return f"http://127.0.0.1:{port}", server


def start_gunicorn(folder: Path) -> tuple[str, ServerProcess]:
    """Gunicorn with an application that does the same."""
    port = free_port()
    (folder / "reading.py").write_text(_APPLICATION)
    server = ServerProcess(
        "gunicorn",
        [
            *(sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}"),
            *("--threads", "4", "--keep-alive", "30", "--worker-tmp-dir", str(folder)),
            *("--limit-request-field_size", "16380", "--limit-request-line", "0"),
            *("--access-logfile", str(folder / "read.log"), "--access-logformat", "%(s)s %(r)s"),
            "reading:application",
        ],
        folder,
        lambda: answers(port, "/ready"),
    )
    return f"http://127.0.0.1:{port}", server


def send_all(port: int, corpus: list[bytes]) -> None:
    """Each on a connection of its own, until the gateway has said all that it will."""
    for sent in corpus:
        with StrictClient(port) as client:
            with contextlib.suppress(ConnectionError):
                client.send(sent)
                client.end()
            while client.hear().keeps_alive:
                pass


def logged(folder: Path) -> Counter[str]:
    """Method and target of each whole request in an access log."""
    read: Counter[str] = Counter()
    for entry in (folder / "read.log").read_text("latin-1").splitlines():
        status, _, request = entry.partition(" ")
        request = request.removesuffix(" HTTP/1.1")
        if status not in UNFINISHED and not request.endswith("/ready"):
            read[request] += 1
    return read


@pytest.fixture(scope="module")
def meant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counter[str]]:
    """What Sluice forwards of the corpus, as the recording origin reads it."""
    with OracleOrigin() as origin:
        config = f"routes: {{ /**: {{ upstream: {origin.url} }} }}\n"
        gateway = Gateway.start(config, tmp_path_factory.mktemp("gateway"))
        send_all(gateway.port, corpus())
        seen, _ = origin.take(waits_for_end=True)
        gateway.stop()
        yield Counter(f"{each.method} {each.target}" for each in seen)


@pytest.mark.parametrize("start", [start_nginx, start_gunicorn])
def test_all_read_the_same(
    tmp_path: Path,
    meant: Counter[str],
    start: Callable[[Path], tuple[str, ServerProcess]],
) -> None:
    """No server sees a request that Sluice did not mean, and none misses one that it takes."""
    url, server = start(tmp_path)
    gateway = Gateway.start(f"routes: {{ /**: {{ upstream: {url} }} }}\n", tmp_path)
    send_all(gateway.port, corpus())
    gateway.stop()
    server.stop()
    read = logged(tmp_path)
    assert not read - meant, read - meant
    # What is missing was refused by the server: `OPTIONS *` and the like.
    assert (meant - read).total() <= meant.total() // 20, meant - read
