"""Which servers a URL means: one, whoever Sentinel names, or a Cluster.

    redis://[[user]:password@]host[:port][/db]           one server; unix:// for its socket
    redis+sentinel://[[user]:password@]host[:port][,...]/service[/db]
    redis+cluster://[[user]:password@]host[:port][,...]

With `rediss` in front every connection is encrypted. The credentials are those of the servers
that keep counts; those of Sentinels are the options `sentinel_username` and
`sentinel_password`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlencode

from gateway.stores.redis.address import RedisAddress, parse_redis_url
from gateway.stores.urls import split_url

SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
CLUSTER_SCHEMES: Final = ("redis+cluster", "rediss+cluster")
SENTINEL_PORT: Final = 26379
SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")


class SentinelUrl(NamedTuple):
    """Sentinels, the service they watch, and how one is let in where it is served."""

    sentinels: tuple[RedisAddress, ...]
    service: str
    server: RedisAddress


def parse_sentinel_url(url: str) -> SentinelUrl:
    """Read `redis+sentinel://` or `rediss+sentinel://`.

    Raises:
        ValueError: it cannot be used; the message holds no value of it.
    """
    scheme, credentials, hosts, path, query = _split(url, SENTINEL_SCHEMES)
    service, _, database = path.strip("/").partition("/")
    if not service:
        raise ValueError("a Sentinel URL names a service: redis+sentinel://host:port/service")
    options = parse_qs(query)
    own = {name: options.pop(name)[0] for name in SENTINEL_OPTIONS if name in options}
    rest = urlencode(options, doseq=True)
    suffix = f"?{rest}" if rest else ""
    server = parse_redis_url(f"{scheme}://{credentials}localhost/{database}{suffix}")
    sentinels = tuple(
        replace(
            _with_host(server, host, SENTINEL_PORT),
            db=0,
            username=own.get("sentinel_username", ""),
            password=own.get("sentinel_password", ""),
        )
        for host in hosts
    )
    return SentinelUrl(sentinels, service, server)


def parse_cluster_url(url: str) -> tuple[RedisAddress, ...]:
    """Read `redis+cluster://` or `rediss+cluster://`: the nodes that are asked for the others.

    Raises:
        ValueError: it cannot be used; the message holds no value of it.
    """
    scheme, credentials, hosts, path, query = _split(url, CLUSTER_SCHEMES)
    if path.strip("/") not in {"", "0"}:
        raise ValueError("a Cluster has one database only: leave the path out")
    suffix = f"?{query}" if query else ""
    node = parse_redis_url(f"{scheme}://{credentials}localhost{suffix}")
    if node.db:
        raise ValueError("a Cluster has one database only: leave db out")
    return tuple(_with_host(node, host, node.port) for host in hosts)


def _split(url: str, schemes: tuple[str, ...]) -> tuple[str, str, list[str], str, str]:
    """Scheme, credentials with their @, hosts, path and query."""
    parts = split_url(url)
    if parts.scheme not in schemes:
        raise ValueError(f"the scheme of this URL is one of {', '.join(schemes)}")
    credentials, at, hosts = parts.netloc.rpartition("@")
    names = hosts.split(",")
    if not all(names):
        raise ValueError("a host is missing in the Redis URL")
    return parts.scheme.partition("+")[0], credentials + at, names, parts.path, parts.query


def _with_host(address: RedisAddress, host: str, default_port: int) -> RedisAddress:
    # The parser of others reads one host and its port; the rest stays as it was read once.
    parsed = parse_redis_url(f"redis://{host}")
    has_port = host.rpartition(":")[2].isdecimal() and not host.endswith("]")
    return replace(address, host=parsed.host, port=parsed.port if has_port else default_port)
