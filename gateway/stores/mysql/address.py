"""Where a MySQL or MariaDB server is and how one is let in: what a URL says."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from gateway.stores.tls_options import STRICT, judge, read_strict

DEFAULT_PORT: Final = 3306
TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", STRICT})
OPTIONS: Final = TLS_OPTIONS | {"ssl", "unix_socket", "connections", "throttlex"}
MAX_CONNECTIONS: Final = 64
DEFAULT_CONNECTIONS: Final = 2
"""One batch is worked out while the other is being flushed; more only wait for one another."""


@dataclass(frozen=True, slots=True)
class MySQLAddress:
    """One server and a database in it, as a URL names them.

    Attributes:
        host: name or address; of no use with a socket.
        port: TCP port.
        unix_socket: path of the server's socket; empty for TCP.
        database: its name.
        username: who one is to the server; with surrogates for bytes that are not UTF-8.
        password: empty for none, else likewise; never shown.
        connections: how many transactions may be under way at once.
        throttlex: the scope whose keys ThrottleX counts too; empty for none.
        tls: how to check the server, if the connection is encrypted.
    """

    host: str
    port: int
    unix_socket: str
    database: str
    username: str
    password: str = field(repr=False)
    connections: int
    throttlex: str
    tls: ssl.SSLContext | None = field(repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.unix_socket or f'{host}:{self.port}'}/{self.database}"


def parse_mysql_url(url: str) -> MySQLAddress:
    """Read `mysql://user:password@host:port/database?option=value`.

    `docs/mysql.md` has the options. With TLS the files of certificates are read.

    Raises:
        ValueError: it cannot be used. The message never holds a value of the URL, which may be
            a password; neither does its cause.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # The texts of others quote what they were given.
        raise ValueError("the MySQL URL has an option or a port of no usable value") from None
    options = dict(pairs)
    if parts.scheme != "mysql" or not options.keys() <= OPTIONS or len(options) != len(pairs):
        known = ", ".join(sorted(OPTIONS))
        raise ValueError(f"a MySQL URL is mysql://... with options of {known}, each once")
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise ValueError("the path of a MySQL URL is the name of a database")
    return MySQLAddress(
        host=parts.hostname or "localhost",
        port=port,
        unix_socket=options.get("unix_socket", ""),
        database=database,
        username=_unescaped(parts.username or ""),
        password=_unescaped(parts.password or ""),
        connections=_connections(options.get("connections", str(DEFAULT_CONNECTIONS))),
        throttlex=options.get("throttlex", ""),
        tls=_tls(options),
    )


def _unescaped(text: str) -> str:
    # To the server these are bytes, and those of an old password may be no UTF-8.
    return unquote(text, errors="surrogateescape")


def _connections(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_CONNECTIONS:
        raise ValueError(f"connections is a whole number from 1 to {MAX_CONNECTIONS}")
    return int(text)


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    if options.get("ssl", "true") != "true":
        raise ValueError("ssl is true, or is left out")
    if "ssl" not in options and not options.keys() & TLS_OPTIONS:
        return None
    is_strict = read_strict(options)
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if "ssl_certfile" in options or "ssl_keyfile" in options:
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    except (OSError, KeyError, ValueError):
        raise ValueError("an ssl_... option of the MySQL URL has no usable value") from None
    return judge(context, is_strict=is_strict)
