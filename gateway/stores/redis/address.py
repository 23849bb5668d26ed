"""Where a Redis server is and how one is let in: what a URL says.

redis-py reads it, so that every option it knows (for TLS above all) means the same here.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio.connection import SSLConnection, parse_url
from redis.exceptions import RedisError

from gateway.stores.tls_options import STRICT, judge, read_strict

SCHEMES: Final = ("redis", "rediss", "unix")
DEFAULT_PORT: Final = 6379
OPTIONS: Final = frozenset({"host", "port", "path", "db", "username", "password"})


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """One server, as a URL names it.

    Attributes:
        host: name or address; empty for a Unix socket.
        port: TCP port.
        path: of the Unix socket; empty for TCP.
        db: number of the database.
        username: empty for the default user.
        password: empty for none; never shown.
        tls: how to check the server, if the connection is encrypted.
    """

    host: str
    port: int
    path: str
    db: int
    username: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)

    @property
    def tls_name(self) -> str:
        """The host as TLS asks for it and checks it: without DNS's last dot (RFC 6066, 3)."""
        return self.host.removesuffix(".")

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_redis_url(url: str) -> RedisAddress:
    """Read `redis://`, `rediss://` (TLS) or `unix://`; for TLS, certificate files as well.

    Raises:
        ValueError: it cannot be used. The message never holds a value of the URL, which may be
            a password; neither does its cause.
    """
    try:
        parts = urlsplit(url)
        options: dict[str, Any] = dict(parse_url(url)) if parts.scheme in SCHEMES else {}
    except ValueError:
        # The texts of others quote what they were given.
        raise ValueError("the Redis URL has an option or a port of no usable value") from None
    if parts.scheme not in SCHEMES:
        raise ValueError(f"the scheme of a Redis URL is one of {', '.join(SCHEMES)}")
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ValueError("the path of a Redis URL is the number of a database")
    options.pop("connection_class", None)
    tls_options = {name: options.pop(name) for name in list(options) if name.startswith("ssl_")}
    if (tls_options and parts.scheme != "rediss") or not options.keys() <= OPTIONS:
        known = ", ".join(sorted(OPTIONS))
        raise ValueError(f"the options of a Redis URL are {known}; ssl_... with rediss://")
    path = options.get("path", "") if parts.scheme == "unix" else ""
    if parts.scheme == "unix" and not path:
        raise ValueError("a unix:// URL names the path of a socket")
    return RedisAddress(
        host=options.get("host", "localhost"),
        port=int(options.get("port", DEFAULT_PORT)),
        path=path,
        db=int(options.get("db", 0)),
        username=options.get("username", ""),
        password=options.get("password", ""),
        tls=_tls(tls_options) if parts.scheme == "rediss" else None,
    )


def _tls(options: dict[str, Any]) -> ssl.SSLContext:
    is_strict = read_strict(options)
    options.pop(STRICT, None)
    try:
        context: ssl.SSLContext = SSLConnection(**options).ssl_context.get()
    except (RedisError, OSError, TypeError, ValueError):
        raise ValueError("an ssl_... option of the Redis URL has no usable value") from None
    return judge(context, is_strict=is_strict)
