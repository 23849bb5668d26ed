"""What stands around every proxy: an nginx as the upstream, a Redis, a scratch directory.

The upstream answers any path with a JSON body of 113 bytes. `/large` is a file of 1 GiB,
`/sink` reads a request's body to its end and answers with the number of bytes.
"""

from __future__ import annotations

import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import Cpus
from bench.programs import program
from bench.servers import Server, accepts_tcp, free_port
from bench.template import nginx_user, render

BODY = (
    b'{"id":"7f9c2ba4e8","status":"accepted","amount":{"value":1250,"currency":"EUR"},'
    b'"created":"2024-05-17T09:26:53Z"}'
)
LARGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Stage:
    """The surroundings of one run.

    Attributes:
        cpus: who runs where.
        directory: scratch space, gone after the run.
        upstream_port: the port of the upstream on 127.0.0.1.
        redis_port: the port of the Redis server on 127.0.0.1.
        upstream_http2_port: where the same upstream speaks HTTP/2.
        large_file: a file of `LARGE_BYTES` bytes, for uploads.
    """

    cpus: Cpus
    directory: Path
    upstream_port: int
    redis_port: int
    upstream_http2_port: int
    large_file: Path

    def new_directory(self, name: str) -> Path:
        """A fresh directory for one server."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    def upstream_counts(self) -> tuple[int, int]:
        """Connections accepted and requests answered by the upstream so far."""
        url = f"http://127.0.0.1:{self.upstream_port}/stub_status"
        with urllib.request.urlopen(url, timeout=5) as answer:
            accepted, _, requests = answer.read().split(b"\n")[2].split()
        return int(accepted), int(requests)


@contextmanager
def set_stage(cpus: Cpus) -> Iterator[Stage]:
    """Start upstream and Redis on the load's CPU; stop and clean up at the end."""
    directory = Path(tempfile.mkdtemp(prefix="sluice-bench-"))
    try:
        with ExitStack() as stack:
            large_file = directory / "large"
            with large_file.open("wb") as file:
                file.truncate(LARGE_BYTES)
            http2_port = free_port()
            upstream = stack.enter_context(_upstream(cpus, directory, http2_port))
            redis = stack.enter_context(_redis(cpus, directory))
            yield Stage(cpus, directory, upstream.port, redis.port, http2_port, large_file)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _upstream(cpus: Cpus, directory: Path, http2_port: int) -> Server:
    home = directory / "upstream"
    home.mkdir()
    port = free_port()
    render(
        "upstream.conf",
        home / "nginx.conf",
        user=nginx_user(),
        port=str(port),
        http2_port=str(http2_port),
        body=BODY.decode(),
        root=str(directory),
    )
    argv = [program("nginx"), "-p", str(home), "-e", "error.log", "-c", "nginx.conf"]
    return Server("upstream nginx", argv, port, cpus.load, home)


def _redis(cpus: Cpus, directory: Path) -> Server:
    home = directory / "redis"
    home.mkdir()
    port = free_port()
    argv = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    argv += ["--save", "", "--appendonly", "no", "--dir", str(home)]
    return Server("Redis", argv, port, cpus.load, home, is_ready=accepts_tcp)
