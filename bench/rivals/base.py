"""What a contestant is: how it is configured for a site, started, and what it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.servers import Server, free_port
from bench.stage import Stage


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit per client address: so many a second, and so many at once."""

    per_second: int
    burst: int


WITHIN = Rate(1_000_000, 1_000_000)
"""So high that every request passes: the limiter works, and says yes."""

REFUSING = Rate(10, 10)
"""So low that of a flood nearly everything is refused."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where one proxy lives and what it has to do.

    Attributes:
        directory: a directory of its own.
        port: where it listens on 127.0.0.1.
        upstream_port: where it forwards to.
        redis_port: where counts may be kept.
        rate: the limit per client address.
        http2_port: where it listens for HTTP/2, if it cannot tell the versions apart.
        upstream_http2_port: where it forwards to with HTTP/2.
    """

    directory: Path
    port: int
    upstream_port: int
    redis_port: int
    rate: Rate
    http2_port: int = 0
    upstream_http2_port: int = 0

    @property
    def log(self) -> Path:
        """The file for the access log: every contestant writes a line per request."""
        return self.directory / "access.log"


@dataclass(frozen=True, slots=True)
class Rival:
    """A proxy in the comparison.

    Attributes:
        name: the row in the tables.
        job: what it does to a request besides forwarding it.
        prepare: writes its configuration into the site and returns the command.
        version: asks the program.
        env: variables added to its environment.
        limits: False where it has no limiter.
        log_name: the file in the site's directory that holds its access log.
        is_split: whether HTTP/2 has a port of its own.
    """

    name: str
    job: str
    prepare: Callable[[Site], list[str]]
    version: Callable[[], str]
    env: Mapping[str, str] = field(default_factory=dict)
    limits: bool = True
    log_name: str = "access.log"
    is_split: bool = False


@dataclass(frozen=True, slots=True)
class Contestant:
    """A rival on its site, with the server that can be started and stopped."""

    rival: Rival
    site: Site
    server: Server

    @property
    def log(self) -> Path:
        """Where its access log really is."""
        return self.site.directory / self.rival.log_name

    def url(self, path: str = "/") -> str:
        """An address on this proxy."""
        return f"http://127.0.0.1:{self.site.port}{path}"

    @property
    def http2_url(self) -> str:
        """An address on this proxy for clients of HTTP/2."""
        port = self.site.http2_port if self.rival.is_split else self.site.port
        return f"http://127.0.0.1:{port}/"


def enter(rival: Rival, stage: Stage, rate: Rate) -> Contestant:
    """Configure the rival for the stage; nothing is started yet.

    Raises:
        BenchError: its program is not installed.
    """
    directory = stage.new_directory(rival.name.split()[0].lower())
    site = Site(
        directory,
        free_port(),
        stage.upstream_port,
        stage.redis_port,
        rate,
        free_port(),
        stage.upstream_http2_port,
    )
    argv = rival.prepare(site)
    server = Server(rival.name, argv, site.port, stage.cpus.proxy, directory, rival.env)
    return Contestant(rival, site, server)
