"""URLs of stores: their parts, their options, and the rules of each kind of store.

Each kind of store owns its URLs: the module `url.py` beside it, or `store_url.py` in the folder of
another system, has an object with the methods of `UrlRules`. `gateway.stores.kinds` lists these
objects. A store of another distribution has one as its attribute `urls`.

A mistake in a URL is a `StoreUrlError`. Its message may quote the URL, so it is for `sluice check`,
which hides passwords; the stores themselves raise the error that `usable` makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, urlsplit

R = TypeVar("R")

MAX_PORT: Final = 65_535
LOGIN_PATTERN: Final = r"([^/?#\s@]*@)?"
HOST_PATTERN: Final = r"(\[[0-9A-Fa-f:.]+\]|[^/?#\s@,:\[\]]+)(:0{0,4}[1-9][0-9]{0,4})?"
HOSTS_PATTERN: Final = rf"{HOST_PATTERN}(,{HOST_PATTERN})*"
"""For JSON Schema: credentials, one host with a port, several of them."""

_URL: Final = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)


class StoreUrlError(ValueError):
    """A URL that names no store; `hint` proposes a fix."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreHost(NamedTuple):
    """One host of a URL: without brackets, in lower case; the port is 0 if it is not set."""

    name: str
    port: int

    def shown(self, default_port: int) -> str:
        """Return `host:port`, an IPv6 address in brackets."""
        host = f"[{self.name}]" if ":" in self.name else self.name
        return f"{host}:{self.port or default_port}"


class UrlParts(NamedTuple):
    """The parts of a URL.

    Attributes:
        scheme: in lower case.
        username: as written, percent-encoded; None if there are no credentials.
        password: as written, percent-encoded; empty if there is only a user.
        hosts: none, one or several.
        path: as written, percent-encoded.
        options: the query, decoded.
    """

    scheme: str
    username: str | None
    password: str
    hosts: tuple[StoreHost, ...]
    path: str
    options: Mapping[str, str]

    @property
    def host(self) -> StoreHost | None:
        """The only host; None if there is none, or more than one."""
        return self.hosts[0] if len(self.hosts) == 1 else None


class StoreUrl(NamedTuple):
    """Where a URL says that counts are kept.

    Two URLs with a common server and the same `database` and `part` lead to the same counts.

    Attributes:
        kind: the kind of the store, such as redis.
        place: hosts and ports with commas between them, or the path of a socket or file; empty if
            each process has its own.
        database: the number of a Redis database, or the name of a MySQL one.
        options: the query, decoded.
        part: what else separates counts there, such as the service that Sentinels watch.
    """

    kind: str
    place: str
    database: int | str
    options: Mapping[str, str]
    part: str = ""


@runtime_checkable
class UrlRules(Protocol):
    """The rules of a kind of store for its URLs.

    Attributes:
        secrets: options whose values are never shown.
    """

    secrets: frozenset[str]

    def read(self, url: UrlParts) -> StoreUrl:
        """Check a URL and return where it leads, without connecting or reading files.

        Raises:
            StoreUrlError: it cannot be used.
        """

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """Return the sentences of `sluice check --explain` on where counts are kept.

        Args:
            url: what `read` returned.
            domain: the namespace of counts.
        """


def kept_in(where: str, domain: str) -> str:
    """Return the sentence on a store that gateways share."""
    return f"Counts are kept in {where}, shared by all gateways of domain {domain}."


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL (RFC 3986, appendix B); hosts are not checked.

    `urlsplit` checks the brackets of an IPv6 address as if there were only one host, and
    differently in different versions of Python.
    """
    match = _URL.fullmatch(url)
    scheme, netloc, path, query, fragment = match.groups("") if match else ("", "", url, "", "")
    return SplitResult(scheme.lower(), netloc, path, query, fragment)


def read_parts(url: str) -> UrlParts:
    """Return the parts of a URL.

    Raises:
        StoreUrlError: a host or a port is invalid, an option is repeated, or there is a fragment.
    """
    parts = split_url(url)
    login, at, places = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    if parts.fragment or url.endswith("#"):
        raise StoreUrlError("the URL of the store has a fragment", "a # is written %23")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise StoreUrlError("an option of the store is set twice", "set each once")
    return UrlParts(
        parts.scheme,
        username if at else None,
        password,
        tuple(_host(place) for place in places.split(",")) if places else (),
        parts.path,
        options,
    )


def _host(text: str) -> StoreHost:
    try:
        place = urlsplit(f"//{text}")
        return StoreHost(place.hostname or "", place.port or 0)
    except ValueError:
        raise StoreUrlError("the URL of the store has no valid host and port") from None


def usable(url: str, read: Callable[[UrlParts], R], example: str) -> R:
    """Return what `read` makes of a URL, for a store that is made without `sluice check`.

    Args:
        url: the URL.
        read: takes its parts.
        example: a URL that can be used.

    Raises:
        ValueError: the URL cannot be used. The message holds no value of the URL, which may be a
            password; nor does its cause.
    """
    try:
        return read(read_parts(url))
    except StoreUrlError:
        message = f"a URL of this store is such as {example}; `sluice check` shows the mistake"
        raise ValueError(message) from None


class Option(NamedTuple):
    """An option of a URL.

    Attributes:
        pattern: the pattern of its value in the JSON Schema.
        check: returns what is wrong with a value, and a hint; None if it can be used. The message
            has `{}` where the value is quoted.
        unquoted: the message to use instead if the value may be a password.
    """

    pattern: str
    check: Callable[[str], tuple[str, str] | None]
    unquoted: str = "none of these"


def any_text() -> Option:
    """Return an option that accepts any value."""
    return Option(r"[^&\s]+", lambda value: None if value else ("is empty", ""))


def whole_number(most: int, least: int = 1, pattern: str = "[0-9]{1,9}") -> Option:
    """Return an option that is a whole number."""

    def check(value: str) -> tuple[str, str] | None:
        if re.fullmatch("[0-9]{1,9}", value) and least <= int(value) <= most:
            return None
        return "is {}", f"use a whole number from {least} to {most}"

    return Option(pattern, check, "no number")


def one_of(*words: str, also: Sequence[str] = (), message: str = "is {}", hint: str = "") -> Option:
    """Return an option that is one of some words.

    Args:
        words: the words.
        also: words that are accepted, in lower case, but not recommended.
        message: what is wrong with any other.
        hint: what to write; the words by default.
    """

    def check(value: str) -> tuple[str, str] | None:
        if value in words or (also and value.lower() in {*words, *also}):
            return None
        return message, hint or " or ".join(words)

    return Option(f"({'|'.join(words)})" if not also else r"[^&\s]+", check)


def check_options(options: Mapping[str, str], known: Mapping[str, Option]) -> None:
    """Check the names and the values of options.

    Raises:
        StoreUrlError: an option is unknown, or has an invalid value.
    """
    # An unescaped & turns a part of a password into options: then repeat no name and no value.
    may_quote = not any("password" in name.lower() for name in options)
    for name, value in options.items():
        option = known.get(name)
        if option is None:
            near = get_close_matches(name, known, 1)
            names = ", ".join(known) or "none"
            hint = f"did you mean {near[0]}?" if near else f"options: {names}"
            shown = repr(name) if may_quote else "one of the options"
            raise StoreUrlError(f"{shown} is not an option of this store", hint)
        wrong = option.check(value)
        if wrong is not None:
            message, hint = wrong
            shown = repr(value) if may_quote else option.unquoted
            raise StoreUrlError(f"{name} {message.format(shown)}", hint)


def options_pattern(options: Mapping[str, Option]) -> str:
    """Return the pattern of what follows the path: options in any order."""
    if not options:
        return ""
    each = "|".join(f"{name}={option.pattern}" for name, option in options.items())
    return rf"(\?({each})(&({each}))*)?"


def lone_host(url: UrlParts, servers: str, example: str) -> StoreHost:
    """Return the host of a URL of one server that has neither users nor databases.

    Args:
        url: the URL.
        servers: what such a server is called, with an article.
        example: a URL that can be used; `{host}` stands for the host of this one.

    Raises:
        StoreUrlError: there is not exactly one host, or the URL has other parts.
    """
    host = url.host
    if host is None or not host.name:
        shown = example.format(host="127.0.0.1")
        raise StoreUrlError("the URL of the store has not one host", f"for example {shown}")
    if url.username is not None or url.path.strip("/"):
        hint = f"for example {example.format(host=host.name)}"
        raise StoreUrlError(f"{servers} has neither users nor databases", hint)
    return host
