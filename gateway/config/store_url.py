"""URLs of stores: which schemes there are, and what each may say.

Checked without connecting; the store of that scheme reads the URL again for its own use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.config.address import MAX_URL, redact

MAX_KEYS: Final = 100_000_000
MAX_DATABASE: Final = 99_999

_MYSQL_OPTION: Final = (
    r"(connections=([1-9]|[1-5][0-9]|6[0-4])|ssl=true|"
    r"(ssl_ca_certs|ssl_certfile|ssl_keyfile|throttlex|unix_socket)=[^&\s]+)"
)
STORE_URL_PATTERN: Final = (
    r"^\s*(memory://(\?max_keys=[0-9]{1,9})?|redis://[^/?#\s]+(/[0-9]{0,5})?|"
    r"rediss://[^/?#\s]+(/[0-9]{0,5})?(\?\S*)?|unix:///[^?#\s]+(\?db=[0-9]{1,5})?|"
    rf"mysql://[^/?#\s]+/[^/?#\s]+(\?{_MYSQL_OPTION}(&{_MYSQL_OPTION})*)?)\s*$"
)


class StoreUrlError(ValueError):
    """A URL that names no store; `hint` says what would do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreUrl(NamedTuple):
    """What a URL says, for explanations.

    Attributes:
        kind: memory, redis or mysql.
        place: host and port, or the path of a socket; empty for memory.
        database: the number of the Redis database, or the name of the MySQL one.
        options: what follows the question mark.
    """

    kind: str
    place: str
    database: int | str
    options: dict[str, str]


def parse_store_url(url: str) -> StoreUrl:
    """Read the URL of a store.

    Raises:
        StoreUrlError: no store has that scheme, or the rest does not suit it.
    """
    text = url.strip()
    if len(text) > MAX_URL:
        raise StoreUrlError("the URL of the store is too long", f"at most {MAX_URL} characters")
    scheme = text.partition("://")[0]
    if "://" not in text:
        raise StoreUrlError(f"{redact(text)!r} is not the URL of a store", _missing_hint(text))
    read = _READERS.get(scheme)
    if read is None:
        near = get_close_matches(scheme.lower(), _READERS, 1)
        known = "memory://, redis://, rediss://, unix:// or mysql://"
        hint = f"did you mean {near[0]}://? {known}" if near else known
        raise StoreUrlError(f"{scheme!r} is not a kind of store", hint)
    if _UNESCAPED.search(text):
        hint = "in a password / is written %2F, ? %3F, # %23 and @ %40"
        raise StoreUrlError("the password of the store is not escaped", hint)
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises for a port that is no number
    except ValueError:
        raise StoreUrlError(f"{redact(text)!r} has no valid host and port") from None
    if parts.fragment or text.endswith("#"):
        raise StoreUrlError("the URL of the store has a fragment", "a # is written %23")
    return read(parts, _options(parts))


def _read_memory(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if parts.netloc or parts.path.strip("/"):
        hint = "write memory://, with options as in memory://?max_keys=100000"
        raise StoreUrlError("the memory store has no address", hint)
    _check_options(options, {"max_keys": MAX_KEYS})
    return StoreUrl("memory", "", 0, options)


def _read_redis(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if not parts.hostname:
        hint = f"such as {parts.scheme}://127.0.0.1:6379/0"
        raise StoreUrlError("the URL of the store has no host", hint)
    database = parts.path.strip("/")
    if database and not re.fullmatch(r"[0-9]{1,5}", database):
        message = f"{database!r} is not the number of a Redis database"
        raise StoreUrlError(message, f"such as {parts.scheme}://{parts.hostname}/0")
    _check_options(options, _TLS_OPTIONS if parts.scheme == "rediss" else {})
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return StoreUrl("redis", f"{host}:{parts.port or 6379}", int(database or 0), options)


def _read_unix(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if parts.hostname or len(parts.path) < 2:
        hint = "such as unix:///run/redis/redis.sock?db=0"
        raise StoreUrlError("the URL of the store names no socket", hint)
    _check_options(options, {"db": MAX_DATABASE})
    return StoreUrl("redis", parts.path, int(options.get("db", 0)), options)


def _read_mysql(parts: SplitResult, options: dict[str, str]) -> StoreUrl:
    if not parts.hostname:
        hint = "such as mysql://gateway:password@127.0.0.1:3306/sluice"
        raise StoreUrlError("the URL of the store has no host", hint)
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        hint = f"such as mysql://{parts.hostname}/sluice"
        raise StoreUrlError("the URL of the store names no database", hint)
    _check_options(options, _MYSQL_OPTIONS)
    if options.get("ssl", "true") != "true":
        raise StoreUrlError(f"ssl is {options['ssl']!r}", "true, or left out")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = options.get("unix_socket") or f"{host}:{parts.port or 3306}"
    return StoreUrl("mysql", place, database, options)


def _options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise StoreUrlError("an option of the store is said twice", "each once")
    return options


def _check_options(options: dict[str, str], known: dict[str, int]) -> None:
    """Check names, and values: whole numbers up to a bound, or text where that is 0."""
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            names = ", ".join(known) or "there are none"
            hint = f"did you mean {near[0]}?" if near else f"options: {names}"
            raise StoreUrlError(f"{name!r} is not an option of this store", hint)
        most = known[name]
        if most == 0 and not value:
            raise StoreUrlError(f"{name} is empty")
        is_number = re.fullmatch(r"[0-9]{1,9}", value) is not None
        least = 0 if name == "db" else 1
        if most and not (is_number and least <= int(value) <= most):
            raise StoreUrlError(f"{name} is {value!r}", f"a whole number from {least} to {most}")


def _missing_hint(text: str) -> str:
    if text.startswith(("redis", "rediss", "memory")):
        kind = "memory" if text.startswith("memory") else "redis"
        return "write memory://" if kind == "memory" else "such as redis://127.0.0.1:6379/0"
    return "memory://, or such as redis://127.0.0.1:6379/0"


_UNESCAPED: Final = re.compile(r"://[^@]*[/?#@].*@|://[^@/?#]*@[^@]*@")

_TLS_OPTIONS: Final[dict[str, int]] = dict.fromkeys(
    (
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
        "ssl_password",
    ),
    0,
)
"""As redis-py names them; the store reads their values."""

_MYSQL_OPTIONS: Final[dict[str, int]] = {
    "connections": 64,
    "ssl": 0,
    "ssl_ca_certs": 0,
    "ssl_certfile": 0,
    "ssl_keyfile": 0,
    "throttlex": 0,
    "unix_socket": 0,
}

_READERS: Final[dict[str, Callable[[SplitResult, dict[str, str]], StoreUrl]]] = {
    "memory": _read_memory,
    "redis": _read_redis,
    "rediss": _read_redis,
    "unix": _read_unix,
    "mysql": _read_mysql,
}
