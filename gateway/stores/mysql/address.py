"""A MySQL or MariaDB database as a URL names it: its address, credentials and TLS context."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from gateway.stores.mysql.url import MYSQL, PORT, TLS_OPTIONS
from gateway.stores.tls_options import judge, read_strict
from gateway.stores.urls import StoreUrlError, UrlParts, usable

DEFAULT_CONNECTIONS: Final = 2
"""One batch is computed while the other is being flushed; more would only wait for one another."""


@dataclass(frozen=True, slots=True)
class MySQLAddress:
    """One server and a database in it, as a URL names them.

    Attributes:
        host: name or address; of no use with a socket.
        port: TCP port.
        unix_socket: path of the server's socket; empty for TCP.
        database: its name.
        username: the user; with surrogates for bytes that are not UTF-8.
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
    """Return the database that `mysql://` names; with TLS, read certificate files.

    Raises:
        ValueError: it cannot be used; the message holds no value of it, which may be a password.
    """
    return usable(url, _read, "mysql://gateway:password@127.0.0.1:3306/sluice")


def _read(parts: UrlParts) -> MySQLAddress:
    if parts.scheme not in MYSQL.schemes:
        raise StoreUrlError("the scheme is another")
    said = MYSQL.read(parts)
    options = said.options
    host = parts.hosts[0]
    return MySQLAddress(
        host=host.name,
        port=host.port or PORT,
        unix_socket=options.get("unix_socket", ""),
        database=str(said.database),
        username=_unescaped(parts.username or ""),
        password=_unescaped(parts.password),
        connections=int(options.get("connections", DEFAULT_CONNECTIONS)),
        throttlex=options.get("throttlex", ""),
        tls=_tls(options),
    )


def _unescaped(text: str) -> str:
    # To the server these are bytes, and those of an old password may be no UTF-8.
    return unquote(text, errors="surrogateescape")


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    if "ssl" not in options and not options.keys() & TLS_OPTIONS.keys():
        return None
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if "ssl_certfile" in options or "ssl_keyfile" in options:
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    except (OSError, KeyError, ValueError):
        raise ValueError("an ssl_... option of the MySQL URL has no usable value") from None
    return judge(context, is_strict=read_strict(options))
