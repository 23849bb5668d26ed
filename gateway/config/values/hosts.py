"""Hosts: names and addresses, parsed in one way everywhere in a configuration.

Text that is accepted here is a valid host for everything that connects, listens or compares later,
and equivalent spellings give the same text. Nothing is resolved.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

MAX_NAME: Final = 253
"""Characters in a name, without the trailing dot (RFC 1035, section 2.3.4)."""

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")
"""Text that resolvers treat as an IPv4 address, however odd (WHATWG URL, section 3.5)."""
_HOST_AND_PORT: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]*))?")

_WORD: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_TEMPLATE: Final = re.compile(r"\{\{.*\}\}|\{%.*%\}", re.DOTALL)
_VARIABLE: Final = re.compile(
    rf"\$({_WORD})|\$\(({_WORD})\)|\$\{{({_WORD})\}}|%({_WORD})%|(?<!\$)\{{({_WORD})\}}|<({_WORD})>"
)
"""Variables as shells, Make, Kubernetes, Windows and manuals write them."""
_LONE_VARIABLE: Final = re.compile(r"\$(?:[A-Z][A-Z0-9_]*|\([A-Z][A-Z0-9_]*\))")


class HostError(ValueError):
    """Text that is not a host or address; `hint` says how to fix it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class HostAndPort(NamedTuple):
    """The parts of an authority of a URL; the port is empty if it is missing."""

    host: str
    port: str


def parse_host(host: str, text: str = "") -> str:
    """Return a host in its normal form: a name as written, an address in its shortest form.

    IPv6 may be in brackets, and is returned without; an IPv4-mapped address (`::ffff:10.0.0.1`) is
    returned as IPv4.

    Args:
        host: the text of the host.
        text: the surrounding text, for messages.

    Raises:
        HostError: it is neither a name nor an address.
    """
    if not host:
        raise HostError(f"{text!r} has no host", "for example 127.0.0.1:9000")
    unfilled = unfilled_hint(host)
    if unfilled:
        raise HostError(f"{host!r} is not a host", unfilled)
    if host.startswith("[") or ":" in host:
        return _parse_ipv6(host)
    if _ENDS_IN_NUMBER.fullmatch(host):
        return _parse_ipv4(host)
    if not _NAME.fullmatch(host) or len(host.removesuffix(".")) > MAX_NAME:
        raise HostError(f"{host!r} is not a host name", _name_hint(host))
    return host


def same_host(host: str) -> str:
    """Return the same text for all spellings of a host.

    A trailing dot stays: without it, a name may be resolved below the machine's own domain.

    Raises:
        HostError: it is not a host.
    """
    return parse_host(host).lower()


def split_host(text: str) -> HostAndPort | None:
    """Split `host`, `host:80` or `[::1]:80`; None if it is none of these."""
    match = _HOST_AND_PORT.fullmatch(text)
    return None if match is None else HostAndPort(match[1], match[2] or "")


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address in a text, or None.

    An IPv4-mapped address becomes the IPv4 address: whether Python treats the mapped form as
    loopback, unspecified or private differs between its versions.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def unfilled_hint(text: str) -> str:
    """Return the hint for a variable or template that was not filled in; or empty.

    Text before an @ or after a question mark is ignored: it may be a password.
    """
    text = text.rpartition("@")[2].partition("?")[0]
    if _TEMPLATE.search(text):
        return "fill in the template first; variables are written ${NAME}"
    found = _VARIABLE.search(text)
    if found is None:
        return ""
    return f"write ${{{next(filter(None, found.groups()))}}}"


def is_lone_variable(text: str) -> bool:
    """Return whether a text is just a variable of a shell, or a template's braces."""
    return bool(_LONE_VARIABLE.fullmatch(text) or _TEMPLATE.fullmatch(text))


def _parse_ipv6(host: str) -> str:
    is_bracketed = host.startswith("[") and host.endswith("]")
    address = read_address(host[1:-1] if is_bracketed else host)
    if address is None or ":" not in host:
        raise HostError(f"{host!r} is not an IPv6 address", "for example [::1] or [fd00::1]")
    return str(address)


def _parse_ipv4(host: str) -> str:
    try:
        return str(IPv4Address(host))
    except ValueError:
        raise HostError(f"{host!r} is not an IPv4 address", _ipv4_hint(host)) from None


def _ipv4_hint(host: str) -> str:
    """Return the hint for an old or odd spelling of an address."""
    labels = host.removesuffix(".").split(".")
    if all(label.isascii() and label.isdigit() for label in labels) and len(labels) == 4:
        plain = ".".join(str(int(label)) for label in labels)
        if all(int(label) <= 255 for label in labels):
            return f"write {plain}: without leading zeros and a trailing dot"
    if len(labels) == 1 and labels[0].isdigit():
        return "use four numbers from 0 to 255, for example 10.0.0.1"
    try:
        meant = socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    except OSError:
        return "use four numbers from 0 to 255, for example 10.0.0.1"
    return f"did you mean {meant}?"


def _name_hint(host: str) -> str:
    if not host.isascii():
        try:
            return f"write {_to_ascii(host)}"
        except UnicodeError:
            pass
    return "use letters, digits, dots and hyphens, for example api.internal"


def _to_ascii(host: str) -> str:
    """Return an internationalised name as it is resolved (RFC 5891)."""
    import idna  # aiohttp installs it; nothing else needs it at start.

    return idna.encode(host, uts46=True).decode("ascii")
