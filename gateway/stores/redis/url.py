"""URLs of Redis and Valkey: one server, the primary that Sentinels name, or a Cluster.

    redis://[[user]:password@]host[:port][/db][?ratio=policy]    one server
    unix://[[user]:password@]/path/to/socket[?db=0]              its socket
    redis+sentinel://[[user]:password@]host[:port][,...]/service[/db]
    redis+cluster://[[user]:password@]host[:port][,...]

With the prefix `rediss` every connection is encrypted, with the TLS options of redis-py. The
credentials are those of the servers that keep counts; Sentinels have the options
`sentinel_username` and `sentinel_password`. `address.py` turns such a URL into addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.stores.capabilities import Capabilities
from gateway.stores.tls_options import STRICT
from gateway.stores.urls import (
    HOST_PATTERN,
    HOSTS_PATTERN,
    LOGIN_PATTERN,
    Option,
    StoreUrl,
    StoreUrlError,
    UrlParts,
    any_text,
    check_options,
    kept_in,
    one_of,
    options_pattern,
    whole_number,
)

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
MAX_DATABASE: Final = 99_999
CHECK_HOSTNAME: Final = "ssl_check_hostname"
FALSE: Final = ("false", "0", "f", "n", "no")
"""The texts that redis-py reads as false; it reads every other one as true, such as `off`."""

_NO_TLS_VALUE: Final = "has another value than it may have"
_TLS: Final[Mapping[str, Option]] = {
    "ssl_ca_certs": any_text(),
    "ssl_ca_path": any_text(),
    "ssl_cert_reqs": one_of("none", "optional", "required", message=_NO_TLS_VALUE),
    "ssl_certfile": any_text(),
    CHECK_HOSTNAME: one_of(
        "true", "false", also=(*FALSE, "1", "t", "y", "yes"), message=_NO_TLS_VALUE
    ),
    "ssl_keyfile": any_text(),
    "ssl_password": any_text(),
    STRICT: one_of("true", "false"),
}
"""Named as in redis-py, except the last."""

_SHARED: Final = {"ratio": any_text()}
_SENTINEL: Final = {"sentinel_username": any_text(), "sentinel_password": any_text()}
_SOCKET: Final = {"db": whole_number(MAX_DATABASE, 0, "[0-9]{1,5}")}
_CAPABILITIES: Final = Capabilities(keeps_records=True, keeps_reports=True)
_SECRETS: Final = frozenset({"ssl_password", "sentinel_password"})


class RedisUrls:
    """URLs of one server; see `gateway.stores.kinds.StoreKind`."""

    kind: str = "redis"
    schemes: tuple[str, ...] = ("redis", "rediss")
    maker: str = "gateway.stores.redis.store:RedisStore"
    library: str = "redis"
    pattern: str = (
        rf"redis://{LOGIN_PATTERN}{HOST_PATTERN}(/[0-9]{{0,5}})?{options_pattern(_SHARED)}|"
        rf"rediss://{LOGIN_PATTERN}{HOST_PATTERN}(/[0-9]{{0,5}})?"
        rf"{options_pattern({**_SHARED, **_TLS})}"
    )
    secrets: frozenset[str] = _SECRETS
    capabilities: Capabilities = _CAPABILITIES

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        if len(url.hosts) > 1:
            hint = f"for several, use {url.scheme}+sentinel:// or {url.scheme}+cluster://"
            raise StoreUrlError("the URL of the store has several hosts", hint)
        host = url.host
        if host is None or not host.name:
            hint = f"for example {url.scheme}://127.0.0.1:6379/0"
            raise StoreUrlError("the URL of the store has no host", hint)
        database = _database(url.path.strip("/"), f"{url.scheme}://{host.name}/0")
        check_options(url.options, {**_SHARED, **(_TLS if is_encrypted(url) else {})})
        return StoreUrl(self.kind, host.shown(PORT), database, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        sentence = kept_in(f"Redis at {url.place}, database {url.database}", domain)
        policy = url.options.get("ratio")
        if not policy:
            return (sentence,)
        shared = (
            f"Those of policy {policy} are kept in the form of a ratio server, and shared with it."
        )
        return sentence, shared


class UnixUrls(RedisUrls):
    """URLs of a server's socket."""

    schemes: tuple[str, ...] = ("unix",)
    pattern: str = rf"unix:///[^?#\s]+{options_pattern(_SOCKET)}"

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        if any(host.name for host in url.hosts) or len(url.path) < 2:
            hint = "for example unix:///run/redis/redis.sock?db=0"
            raise StoreUrlError("the URL of the store names no socket", hint)
        check_options(url.options, _SOCKET)
        database = int(url.options.get("db", 0))
        return StoreUrl(self.kind, url.path, database, url.options)


class SentinelUrls:
    """URLs of the primary that Sentinels name."""

    kind: str = "sentinel"
    schemes: tuple[str, ...] = ("redis+sentinel", "rediss+sentinel")
    maker: str = RedisUrls.maker
    library: str = "redis"
    pattern: str = (
        rf"redis\+sentinel://{LOGIN_PATTERN}{HOSTS_PATTERN}/[^/?#\s]+(/[0-9]{{1,5}})?"
        rf"{options_pattern(_SENTINEL)}|"
        rf"rediss\+sentinel://{LOGIN_PATTERN}{HOSTS_PATTERN}/[^/?#\s]+(/[0-9]{{1,5}})?"
        rf"{options_pattern({**_SENTINEL, **_TLS})}"
    )
    secrets: frozenset[str] = _SECRETS
    capabilities: Capabilities = _CAPABILITIES

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        place = _places(url, SENTINEL_PORT)
        service, slash, path = url.path.strip("/").partition("/")
        if not service:
            hint = f"for example {url.scheme}://{place}/mymaster/0"
            raise StoreUrlError("the URL of the store names no service of the Sentinels", hint)
        database = _database(path, f"{url.scheme}://{place}/{service}/0", may_be_empty=not slash)
        check_options(url.options, {**_SENTINEL, **(_TLS if is_encrypted(url) else {})})
        return StoreUrl(self.kind, place, database, url.options, service)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        where = f"Redis, database {url.database}, at the primary of {url.part} according to "
        return (kept_in(f"{where}the Sentinels at {url.place}", domain),)


class ClusterUrls:
    """URLs of a Cluster, by some of its nodes."""

    kind: str = "cluster"
    schemes: tuple[str, ...] = ("redis+cluster", "rediss+cluster")
    maker: str = "gateway.stores.redis.cluster:RedisClusterStore"
    library: str = "redis"
    pattern: str = (
        rf"redis\+cluster://{LOGIN_PATTERN}{HOSTS_PATTERN}/?0?|"
        rf"rediss\+cluster://{LOGIN_PATTERN}{HOSTS_PATTERN}/?0?{options_pattern(_TLS)}"
    )
    secrets: frozenset[str] = _SECRETS
    capabilities: Capabilities = _CAPABILITIES

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        place = _places(url, PORT)
        if url.path.strip("/") not in {"", "0"}:
            raise StoreUrlError("a Cluster has one database only", "remove the path")
        check_options(url.options, _TLS if is_encrypted(url) else {})
        return StoreUrl(self.kind, place, 0, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        return (kept_in(f"the Redis Cluster that {url.place} belongs to", domain),)


REDIS: Final = RedisUrls()
UNIX: Final = UnixUrls()
SENTINEL: Final = SentinelUrls()
CLUSTER: Final = ClusterUrls()


def is_encrypted(url: UrlParts) -> bool:
    """Return whether connections to the servers of a URL are encrypted."""
    return url.scheme.startswith("rediss")


def _database(text: str, example: str, *, may_be_empty: bool = True) -> int:
    if not text and may_be_empty:
        return 0
    if not re.fullmatch(r"[0-9]{1,5}", text):
        message = f"{text!r} is not the number of a Redis database"
        raise StoreUrlError(message, f"for example {example}")
    return int(text)


def _places(url: UrlParts, port: int) -> str:
    if not url.hosts or not all(host.name for host in url.hosts):
        hint = f"for example {url.scheme}://10.0.0.1:{port},10.0.0.2:{port}"
        raise StoreUrlError("a host of the store is missing", hint)
    return ", ".join(host.shown(port) for host in url.hosts)
