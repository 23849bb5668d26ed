"""Redis servers as a URL names them: address, credentials and TLS context of each."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from redis.asyncio.connection import SSLConnection
from redis.exceptions import RedisError

from gateway.stores.redis.url import (
    CHECK_HOSTNAME,
    CLUSTER,
    FALSE,
    PORT,
    REDIS,
    SENTINEL,
    SENTINEL_PORT,
    UNIX,
    ClusterUrls,
    RedisUrls,
    SentinelUrls,
    is_encrypted,
)
from gateway.stores.tls_options import STRICT, judge, read_strict
from gateway.stores.urls import StoreHost, StoreUrl, StoreUrlError, UrlParts, usable


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """One server, as a URL names it.

    Attributes:
        host: name or address; empty for a Unix socket.
        port: TCP port.
        path: path of the Unix socket; empty for TCP.
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
        """The host as TLS requests and checks it: without DNS's last dot (RFC 6066, 3)."""
        return self.host.removesuffix(".")

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SentinelAddress(NamedTuple):
    """Sentinels, the service they watch, and how to connect to its servers."""

    sentinels: tuple[RedisAddress, ...]
    service: str
    server: RedisAddress


def parse_redis_url(url: str) -> RedisAddress:
    """Return the server of `redis://`, `rediss://` or `unix://`; for TLS, read certificate files.

    Raises:
        ValueError: it cannot be used; the message has no value of it, which may be a password.
    """
    return usable(url, _read_server, "redis://127.0.0.1:6379/0")


def parse_sentinel_url(url: str) -> SentinelAddress:
    """Return what `redis+sentinel://` or `rediss+sentinel://` names.

    Raises:
        ValueError: as for `parse_redis_url`.
    """
    return usable(url, _read_sentinels, "redis+sentinel://10.0.0.1,10.0.0.2/mymaster/0")


def parse_cluster_url(url: str) -> tuple[RedisAddress, ...]:
    """Return the nodes of `redis+cluster://` or `rediss+cluster://` that are asked for the others.

    Raises:
        ValueError: as for `parse_redis_url`.
    """
    return usable(url, _read_nodes, "redis+cluster://10.0.0.1,10.0.0.2")


def _read_server(parts: UrlParts) -> RedisAddress:
    if parts.scheme in UNIX.schemes:
        said = UNIX.read(parts)
        path = unquote(parts.path)
    else:
        said = _checked(REDIS, parts)
        path = ""
    server = _server(parts, int(said.database))
    return replace(server, path=path) if path else _at(server, parts.hosts[0], PORT)


def _read_sentinels(parts: UrlParts) -> SentinelAddress:
    said = _checked(SENTINEL, parts)
    server = _server(parts, int(said.database))
    sentinel = replace(
        server,
        db=0,
        username=parts.options.get("sentinel_username", ""),
        password=parts.options.get("sentinel_password", ""),
    )
    sentinels = tuple(_at(sentinel, host, SENTINEL_PORT) for host in parts.hosts)
    return SentinelAddress(sentinels, said.part, server)


def _read_nodes(parts: UrlParts) -> tuple[RedisAddress, ...]:
    _checked(CLUSTER, parts)
    node = _server(parts, 0)
    return tuple(_at(node, host, PORT) for host in parts.hosts)


def _checked(rules: RedisUrls | SentinelUrls | ClusterUrls, parts: UrlParts) -> StoreUrl:
    if parts.scheme not in rules.schemes:
        raise StoreUrlError("the scheme is another")
    return rules.read(parts)


def _server(parts: UrlParts, database: int) -> RedisAddress:
    """Return how to connect to all servers of a URL, without their addresses."""
    return RedisAddress(
        host="",
        port=0,
        path="",
        db=database,
        username=unquote(parts.username or ""),
        password=unquote(parts.password),
        tls=_tls(parts.options) if is_encrypted(parts) else None,
    )


def _at(server: RedisAddress, host: StoreHost, default_port: int) -> RedisAddress:
    return replace(server, host=host.name, port=host.port or default_port)


def _tls(said: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context that redis-py makes of these options, so that they mean the same here."""
    options: dict[str, Any] = {
        name: value for name, value in said.items() if name.startswith("ssl_") and name != STRICT
    }
    if CHECK_HOSTNAME in options:
        options[CHECK_HOSTNAME] = options[CHECK_HOSTNAME].lower() not in FALSE
    try:
        context: ssl.SSLContext = SSLConnection(**options).ssl_context.get()
    except (RedisError, OSError, TypeError, ValueError):
        raise ValueError("an ssl_... option of the Redis URL has no usable value") from None
    return judge(context, is_strict=read_strict(said))
