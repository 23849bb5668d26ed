"""URLs of stores: the schemes, and the parts that each allows.

They are checked without connecting; the store of the scheme parses the URL again itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway import stores
from gateway.config.values.address import MAX_PORT, MAX_URL
from gateway.config.values.hosts import same_host
from gateway.config.values.redaction import redact
from gateway.config.values.store_parts import StoreUrlError, check_filled, check_hosts, check_tls
from gateway.stores.urls import split_url
from gateway.systems.smockron.codec import DEFAULT_PORT as SMOCKRON_PORT
from gateway.systems.smockron.codec import MAX_NAME
from gateway.systems.throttr.requests_v5 import SIZES, USUAL_SIZE

MAX_KEYS: Final = 100_000_000
MAX_DATABASE: Final = 99_999
_KNOWN: Final = (
    "memory://, redis://, redis+sentinel://, redis+cluster://, unix://, mysql://, "
    "throttr+v5://, ratio:// or smockron://"
)
_CALLED: Final = {
    "mariadb": "mysql",
    "mysql": "mysql",
    "valkey": "redis",
    "redis": "redis",
    "inmemory": "memory",
    "throttr": "throttr+v5",
}
"""Parts of schemes of other programs, such as mysql+pymysql, and the scheme here."""

_LOGIN: Final = r"([^/?#\s@]*@)?"
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[^/?#\s@,:\[\]]+)(:0{0,4}[1-9][0-9]{0,4})?"
_HOSTS: Final = rf"{_LOGIN}{_HOST}(,{_HOST})*"
_MYSQL_OPTION: Final = (
    r"(connections=([1-9]|[1-5][0-9]|6[0-4])|ssl=true|"
    r"ssl_strict=(true|false)|"
    r"(ssl_ca_certs|ssl_certfile|ssl_keyfile|throttlex|unix_socket)=[^&\s]+)"
)
_SMOCKRON_OPTION: Final = r"(domain=[^&\s]+|rejected=[0-9]+(\.[0-9]{1,3})?%)"

STORE_URL_PATTERN: Final = (
    r"^\s*(memory://(\?max_keys=[0-9]{1,9})?|unix:///[^?#\s]+(\?db=[0-9]{1,5})?|"
    rf"redis://{_LOGIN}{_HOST}(/[0-9]{{0,5}})?(\?ratio=[^&\s]+)?|"
    rf"rediss://{_LOGIN}{_HOST}(/[0-9]{{0,5}})?(\?\S*)?|"
    rf"redis\+sentinel://{_HOSTS}/[^/?#\s]+(/[0-9]{{1,5}})?(\?sentinel_(username|password)=\S+)?|"
    rf"rediss\+sentinel://{_HOSTS}/[^/?#\s]+(/[0-9]{{1,5}})?(\?\S*)?|"
    rf"redis\+cluster://{_HOSTS}/?0?|rediss\+cluster://{_HOSTS}/?0?(\?\S*)?|"
    rf"mysql://[^/?#\s]+/[^/?#\s]+(\?{_MYSQL_OPTION}(&{_MYSQL_OPTION})*)?|"
    rf"throttr\+v5://{_HOST}(\?size=(8|16|32|64))?|"
    rf"ratio://{_HOST}/?(\?owner=[^&\s]+)?|"
    rf"smockron://{_HOST}/?(\?{_SMOCKRON_OPTION}(&{_SMOCKRON_OPTION})?)?)\s*$"
)


class StoreUrl(NamedTuple):
    """The parts of a URL, for explanations.

    Attributes:
        kind: memory, redis, mysql, throttr, ratio, smockron; sentinel or cluster for several
            servers; or the scheme of a store of another distribution.
        place: hosts and ports, or the path of a socket; empty for memory.
        database: the number of the Redis database, or the name of the MySQL one.
        options: the options after the question mark.
        service: the Sentinels' name of the primary; otherwise empty.
    """

    kind: str
    place: str
    database: int | str
    options: dict[str, str]
    service: str = ""


def parse_store_url(url: str) -> StoreUrl:
    """Read the URL of a store.

    Raises:
        StoreUrlError: no store has that scheme, or the rest is not valid for it.
    """
    text = url.strip()
    if len(text) > MAX_URL:
        raise StoreUrlError("the URL of the store is too long", f"use at most {MAX_URL} characters")
    scheme = text.partition("://")[0]
    if "://" not in text:
        raise StoreUrlError(f"{redact(text)!r} is not the URL of a store", _missing_hint(text))
    read = _READERS.get(scheme)
    if read is None and scheme in stores.offered():
        # Only the store knows the form of its URL; it is checked when the store is opened.
        return StoreUrl(scheme, redact(text).partition("://")[2], 0, {})
    if read is None:
        words = re.split(r"\W", scheme.lower())
        called = [here for word, here in _CALLED.items() if word in words]
        near = called or get_close_matches(scheme.lower(), _READERS, 1)
        hint = f"did you mean {near[0]}://? {_KNOWN}" if near else _KNOWN
        raise StoreUrlError(f"{scheme!r} is not a kind of store", hint)
    check_filled(text)
    if _UNESCAPED.search(text):
        raise StoreUrlError("the password of the store is not escaped", _ESCAPE_HINT)
    try:
        parts = split_url(text)
    except ValueError:
        raise StoreUrlError(f"{redact(text)!r} has no valid host and port") from None
    check_hosts(parts, text)
    if parts.fragment or text.endswith("#"):
        raise StoreUrlError("the URL of the store has a fragment", "write a # as %23")
    return read(parts, _options(parts))


def is_same_store(one: StoreUrl, other: StoreUrl) -> bool:
    """Return whether two URLs lead to the same counts, as far as the text tells.

    All names of this machine are equal, and one common server makes two Clusters or two groups of
    Sentinels equal. URLs of stores of other distributions are compared as text.
    """
    if one.kind != other.kind or one.kind not in _KINDS:
        return False
    if one.kind == "memory":
        return True
    return (
        (one.database, one.service) == (other.database, other.service)
        and one.options.get("throttlex") == other.options.get("throttlex")
        and not _servers(one).isdisjoint(_servers(other))
    )


def _servers(url: StoreUrl) -> set[str]:
    """Return its hosts and ports, or its socket, each in normal form."""
    if url.place.startswith("/"):
        return {url.place}
    pairs = (place.rpartition(":") for place in url.place.split(", "))
    hosts = ((same_host(host), port) for host, _, port in pairs)
    return {f"{_THIS_MACHINE.get(host, host)}:{port}" for host, port in hosts}


def _read_memory(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if parts.netloc or parts.path.strip("/"):
        hint = "write memory://, with options as in memory://?max_keys=100000"
        raise StoreUrlError("the memory store has no address", hint)
    _check_options(options, {"max_keys": MAX_KEYS})
    return StoreUrl("memory", "", 0, options)


def _read_redis(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if len(_hosts(parts)) > 1:
        hint = f"for several, use {parts.scheme}+sentinel:// or {parts.scheme}+cluster://"
        raise StoreUrlError("the URL of the store has several hosts", hint)
    if not parts.hostname:
        hint = f"for example {parts.scheme}://127.0.0.1:6379/0"
        raise StoreUrlError("the URL of the store has no host", hint)
    database = parts.path.strip("/")
    if database and not re.fullmatch(r"[0-9]{1,5}", database):
        message = f"{database!r} is not the number of a Redis database"
        raise StoreUrlError(message, f"for example {parts.scheme}://{parts.hostname}/0")
    _check_options(options, {"ratio": 0, **(_TLS_OPTIONS if parts.scheme == "rediss" else {})})
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return StoreUrl("redis", f"{host}:{parts.port or 6379}", int(database or 0), options)


def _read_sentinel(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    place = _places(parts, 26379)
    service, slash, database = parts.path.strip("/").partition("/")
    if not service:
        hint = f"for example {parts.scheme}://{place}/mymaster/0"
        raise StoreUrlError("the URL of the store names no service of the Sentinels", hint)
    if slash and not re.fullmatch(r"[0-9]{1,5}", database):
        message = f"{database!r} is not the number of a Redis database"
        raise StoreUrlError(message, f"for example {parts.scheme}://{place}/{service}/0")
    tls = _TLS_OPTIONS if parts.scheme == "rediss+sentinel" else {}
    _check_options(options, {"sentinel_username": 0, "sentinel_password": 0, **tls})
    return StoreUrl("sentinel", place, int(database or 0), options, service)


def _read_cluster(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    place = _places(parts, 6379)
    if parts.path.strip("/") not in {"", "0"}:
        raise StoreUrlError("a Cluster has one database only", "remove the path")
    _check_options(options, _TLS_OPTIONS if parts.scheme == "rediss+cluster" else {})
    return StoreUrl("cluster", place, 0, options)


def _hosts(parts: SplitResult) -> list[SplitResult]:
    """Return the hosts of a URL, which may be several, each as a URL of its own."""
    names = parts.netloc.rpartition("@")[2].split(",")
    return [urlsplit(f"//{name}") for name in names]


def _places(parts: SplitResult, port: int) -> str:
    hosts = _hosts(parts)
    if not all(host.hostname for host in hosts):
        hint = f"for example {parts.scheme}://10.0.0.1:{port},10.0.0.2:{port}"
        raise StoreUrlError("a host of the store is missing", hint)
    names = [
        f"[{host.hostname}]" if ":" in str(host.hostname) else str(host.hostname) for host in hosts
    ]
    return ", ".join(f"{name}:{host.port or port}" for name, host in zip(names, hosts, strict=True))


def _read_unix(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if parts.hostname or len(parts.path) < 2:
        hint = "for example unix:///run/redis/redis.sock?db=0"
        raise StoreUrlError("the URL of the store names no socket", hint)
    _check_options(options, {"db": MAX_DATABASE})
    return StoreUrl("redis", parts.path, int(options.get("db", 0)), options)


def _read_mysql(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if not parts.hostname:
        hint = "for example mysql://gateway:password@127.0.0.1:3306/sluice"
        raise StoreUrlError("the URL of the store has no host", hint)
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        hint = f"for example mysql://{parts.hostname}/sluice"
        raise StoreUrlError("the URL of the store names no database", hint)
    _check_options(options, _MYSQL_OPTIONS)
    if options.get("ssl", "true") != "true":
        raise StoreUrlError(f"ssl is {options['ssl']!r}", "use true, or remove it")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = options.get("unix_socket") or f"{host}:{parts.port or 3306}"
    return StoreUrl("mysql", place, database, options)


def _read_throttr(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if not parts.hostname or len(_hosts(parts)) > 1:
        hint = f"for example {parts.scheme}://127.0.0.1:9000?size=16"
        raise StoreUrlError("the URL of the store must have exactly one host", hint)
    if parts.username is not None or parts.path.strip("/"):
        message = "a Throttr server has neither users nor databases"
        raise StoreUrlError(message, f"for example {parts.scheme}://{parts.hostname}:9000?size=16")
    _check_options(options, {"size": 64})
    size = options.get("size", str(USUAL_SIZE))
    if size not in _THROTTR_SIZES:
        hint = f"use the bits of its numbers: {', '.join(_THROTTR_SIZES)}"
        raise StoreUrlError(f"no Throttr server has size {size}", hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return StoreUrl("throttr", f"{host}:{parts.port or 9000}", 0, options)


def _read_ratio(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if not parts.hostname or len(_hosts(parts)) > 1:
        raise StoreUrlError(
            "the URL of the store must have exactly one host", "for example ratio://127.0.0.1"
        )
    if parts.username is not None or parts.path.strip("/"):
        message = "a ratio server has neither users nor databases"
        raise StoreUrlError(message, f"for example ratio://{parts.hostname}:50051?owner=shop")
    _check_options(options, {"owner": 0})
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return StoreUrl("ratio", f"{host}:{parts.port or 50051}", 0, options)


def _read_smockron(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    example = f"for example {parts.scheme}://127.0.0.1:{SMOCKRON_PORT}"
    if not parts.hostname or len(_hosts(parts)) > 1:
        raise StoreUrlError("the URL of the store must have exactly one host", example)
    if parts.username is not None or parts.path.strip("/"):
        raise StoreUrlError("a master of Smockron has neither users nor databases", example)
    _check_options(options, {"domain": 0, "rejected": 0})
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%", options.get("rejected", "10%"))
    if share is None or float(share[1]) > 100:
        hint = "use the share of refused requests to report, from 0% to 100%"
        raise StoreUrlError(f"rejected is {options['rejected']!r}", hint)
    if len(options.get("domain", "").encode()) > MAX_NAME:
        raise StoreUrlError("the name of the domain is too long", f"use at most {MAX_NAME} bytes")
    if (parts.port or SMOCKRON_PORT) >= MAX_PORT:
        raise StoreUrlError(
            "the master publishes on the port above, and there is none", "a lower port"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return StoreUrl("smockron", f"{host}:{parts.port or SMOCKRON_PORT}", 0, options)


def _options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise StoreUrlError("an option of the store is given twice", "give each once")
    return options


def _check_options(options: dict[str, str], known: dict[str, int]) -> None:
    """Check names, and values: whole numbers up to a maximum, or text if that is 0."""
    # An unescaped & turns parts of a password into options: then no name and no value is shown.
    may_quote = not any("password" in name.lower() for name in options)
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            names = ", ".join(known) or "there are none"
            hint = f"did you mean {near[0]}?" if near else f"options: {names}"
            shown = repr(name) if may_quote else "one of the options"
            raise StoreUrlError(f"{shown} is not an option of this store", hint)
        most = known[name]
        if most == 0 and not value:
            raise StoreUrlError(f"{name} is empty")
        if name == "ssl_strict" and value not in {"true", "false"}:
            shown = repr(value) if may_quote else "neither"
            raise StoreUrlError(f"ssl_strict is {shown}", "use true or false")
        is_number = re.fullmatch(r"[0-9]{1,9}", value) is not None
        least = 0 if name == "db" else 1
        if most and not (is_number and least <= int(value) <= most):
            shown = repr(value) if may_quote else "no number"
            raise StoreUrlError(f"{name} is {shown}", f"use a whole number from {least} to {most}")
    check_tls(options)


def _missing_hint(text: str) -> str:
    if text.startswith(("redis", "rediss", "memory")):
        kind = "memory" if text.startswith("memory") else "redis"
        return "write memory://" if kind == "memory" else "for example redis://127.0.0.1:6379/0"
    return "for example memory:// or redis://127.0.0.1:6379/0"


_KINDS: Final = frozenset(
    {"memory", "redis", "sentinel", "cluster", "mysql", "throttr", "ratio", "smockron"}
)
"""Kinds whose URLs are parsed here."""

_THIS_MACHINE: Final = dict.fromkeys(("localhost", "localhost.", "::1"), "127.0.0.1")

_UNESCAPED: Final = re.compile(r"://.*[/?#@\[\]\s\x00-\x1f\x7f].*@", re.DOTALL)
_ESCAPE_HINT: Final = (
    "percent-encode it (/ is %2F, ? %3F, # %23, @ %40, a space %20), or use ${file:...} "
    "or ${VAR}, which are encoded automatically"
)

_TLS_OPTIONS: Final[dict[str, int]] = dict.fromkeys(
    (
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
        "ssl_password",
        "ssl_strict",
    ),
    0,
)
"""The names of redis-py, except the last; the store reads their values."""

_MYSQL_OPTIONS: Final[dict[str, int]] = {
    "connections": 64,
    "ssl": 0,
    "ssl_ca_certs": 0,
    "ssl_certfile": 0,
    "ssl_keyfile": 0,
    "ssl_strict": 0,
    "throttlex": 0,
    "unix_socket": 0,
}

_THROTTR_SIZES: Final = tuple(map(str, SIZES))

_READERS: Final[dict[str, Callable[[SplitResult, dict[str, str]], StoreUrl]]] = {
    "memory": _read_memory,
    "redis": _read_redis,
    "rediss": _read_redis,
    "redis+sentinel": _read_sentinel,
    "rediss+sentinel": _read_sentinel,
    "redis+cluster": _read_cluster,
    "rediss+cluster": _read_cluster,
    "unix": _read_unix,
    "mysql": _read_mysql,
    "throttr+v5": _read_throttr,
    "ratio": _read_ratio,
    "smockron": _read_smockron,
}
