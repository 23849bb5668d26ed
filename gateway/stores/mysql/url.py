"""The URL of a MySQL or MariaDB database: `mysql://user:password@host:port/database?option=value`.

`docs/mysql.md` describes the options. What is made of such a URL is in `address.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from gateway.stores.capabilities import FULL, Capabilities
from gateway.stores.tls_options import STRICT
from gateway.stores.urls import (
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

PORT: Final = 3306
MAX_CONNECTIONS: Final = 64
TLS_OPTIONS: Final[Mapping[str, Option]] = {
    "ssl_ca_certs": any_text(),
    "ssl_certfile": any_text(),
    "ssl_keyfile": any_text(),
    STRICT: one_of("true", "false"),
}
_OPTIONS: Final[Mapping[str, Option]] = {
    "connections": whole_number(MAX_CONNECTIONS, pattern="([1-9]|[1-5][0-9]|6[0-4])"),
    "ssl": one_of("true", hint="use true, or remove it"),
    **TLS_OPTIONS,
    "throttlex": any_text(),
    "unix_socket": any_text(),
}


class MySQLUrls:
    """See `gateway.stores.kinds.StoreKind`."""

    kind: str = "mysql"
    schemes: tuple[str, ...] = ("mysql",)
    maker: str = "gateway.stores.mysql.store:MySQLStore"
    library: str = "mysql"
    pattern: str = rf"mysql://[^/?#\s]+/[^/?#\s]+{options_pattern(_OPTIONS)}"
    secrets: frozenset[str] = frozenset()
    capabilities: Capabilities = FULL

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        host = url.host
        if host is None or not host.name:
            hint = "for example mysql://gateway:password@127.0.0.1:3306/sluice"
            raise StoreUrlError("the URL of the store has no host", hint)
        database = unquote(url.path.removeprefix("/"))
        if not database or "/" in database:
            hint = f"for example mysql://{host.name}/sluice"
            raise StoreUrlError("the URL of the store names no database", hint)
        check_options(url.options, _OPTIONS)
        place = url.options.get("unix_socket") or host.shown(PORT)
        throttlex = url.options.get("throttlex", "")
        return StoreUrl(self.kind, place, database, url.options, throttlex)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        where = f"MySQL or MariaDB at {url.place}, database {url.database}"
        return (kept_in(where, domain),)


MYSQL: Final = MySQLUrls()
