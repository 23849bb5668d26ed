"""URLs of stores as a configuration has them: checked without connecting.

What holds for the text of every URL is checked here and in `store_parts`; the rest is for the rules
of the store (`gateway.stores.urls`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from pydantic.config import JsonDict

from gateway.config.values.address import MAX_URL
from gateway.config.values.hosts import HostError, same_host
from gateway.config.values.redaction import redact
from gateway.config.values.store_parts import check_filled, check_hosts
from gateway.stores.capabilities import FULL, Capabilities
from gateway.stores.kinds import KINDS, STORES, offered, rules_of
from gateway.stores.urls import StoreUrl, StoreUrlError, kept_in, read_parts, split_url

_CALLED: Final = {
    "mariadb": "mysql",
    "mysql": "mysql",
    "valkey": "redis",
    "redis": "redis",
    "inmemory": "memory",
    "throttr": "throttr+v5",
}
"""Parts of schemes of other programs, such as mysql+pymysql, and the scheme here."""

_UNESCAPED: Final = re.compile(r"://.*[/?#@\[\]\s\x00-\x1f\x7f].*@", re.DOTALL)
_ESCAPE_HINT: Final = (
    "percent-encode it (/ is %2F, ? %3F, # %23, @ %40, a space %20), or use ${file:...} or "
    "${VAR}, which are encoded automatically"
)
_THIS_MACHINE: Final = dict.fromkeys(("localhost", "localhost.", "::1"), "127.0.0.1")


def store_url_schema(schema: JsonDict) -> None:
    """Add to a field's JSON Schema what the URLs of stores look like."""
    patterns = [kind.pattern for kind in KINDS]
    patterns += [rf"{re.escape(scheme)}://\S*" for scheme in offered()]
    schema["pattern"] = rf"^\s*({'|'.join(patterns)})\s*$"


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
    rules = rules_of(scheme)
    if rules is None:
        if scheme not in offered():
            raise StoreUrlError(f"{scheme!r} is not a kind of store", _near_hint(scheme))
        # The store has no rules for its URLs: errors appear when it is opened.
        return StoreUrl(scheme, redact(text).partition("://")[2], 0, {})
    check_filled(text)
    if _UNESCAPED.search(text):
        raise StoreUrlError("the password of the store is not escaped", _ESCAPE_HINT)
    check_hosts(split_url(text), text)
    return rules.read(read_parts(text))


def capabilities_of(url: str) -> Capabilities:
    """Return what the store of a URL can do; one of another distribution keeps every limit."""
    kind = STORES.get(split_url(url.strip()).scheme)
    return FULL if kind is None else kind.capabilities


def explain_store_url(url: str, domain: str) -> Sequence[str]:
    """Return the sentences on where the counts of a store are kept."""
    said = parse_store_url(url)
    rules = rules_of(split_url(url.strip()).scheme)
    if rules is None:
        return (kept_in(f"{said.kind}://{said.place}", domain),)
    return rules.explain(said, domain)


def is_same_store(one: StoreUrl, other: StoreUrl) -> bool:
    """Return whether two URLs lead to the same counts, as far as the text tells.

    Names of this machine are one name, and one server in common makes two Clusters or two groups
    of Sentinels the same.
    """
    if (one.kind, one.database, one.part) != (other.kind, other.database, other.part):
        return False
    return one.place == other.place or not _servers(one).isdisjoint(_servers(other))


def same_store_url(url: str) -> object:
    """Return the same for all spellings of a URL; not to be shown."""
    try:
        parts = read_parts(url.strip())
        return parts.scheme, parts.username, parts.password, parse_store_url(url)
    except StoreUrlError:
        return url.strip()


def _servers(url: StoreUrl) -> set[str]:
    """Return its hosts and ports, or its socket, each in normal form."""
    if url.place.startswith("/"):
        return {url.place}
    pairs = (place.rpartition(":") for place in url.place.split(", "))
    hosts = ((_same_host(host), port) for host, _, port in pairs)
    return {f"{_THIS_MACHINE.get(host, host)}:{port}" for host, port in hosts}


def _same_host(host: str) -> str:
    try:
        return same_host(host)
    except HostError:
        # The place of another distribution's store need not be a host.
        return host


def _near_hint(scheme: str) -> str:
    words = re.split(r"\W", scheme.lower())
    called = [here for word, here in _CALLED.items() if word in words]
    near = called or get_close_matches(scheme.lower(), STORES, 1)
    plain = [f"{kind.schemes[0]}://" for kind in KINDS]
    known = f"{', '.join(plain[:-1])} or {plain[-1]}"
    return f"did you mean {near[0]}://? {known}" if near else known


def _missing_hint(text: str) -> str:
    if text.startswith(("redis", "rediss", "memory")):
        kind = "memory" if text.startswith("memory") else "redis"
        return "write memory://" if kind == "memory" else "for example redis://127.0.0.1:6379/0"
    return "for example memory:// or redis://127.0.0.1:6379/0"
