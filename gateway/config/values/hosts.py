"""Hosts: names and addresses, read in one way wherever a configuration has one.

What is accepted here is a host to everything that connects, listens or compares later, and
equivalent spellings give the same text. Nothing is looked up.
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
"""What resolvers take for an IPv4 address, however odd (WHATWG URL, section 3.5)."""
_HOST_AND_PORT: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]*))?")

_WORD: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_TEMPLATE: Final = re.compile(r"\{\{.*\}\}|\{%.*%\}", re.DOTALL)
_VARIABLE: Final = re.compile(
    rf"\$({_WORD})|\$\(({_WORD})\)|\$\{{({_WORD})\}}|%({_WORD})%|(?<!\$)\{{({_WORD})\}}|<({_WORD})>"
)
"""Variables as shells, Make, Kubernetes, Windows and manuals write them."""
_LONE_VARIABLE: Final = re.compile(r"\$(?:[A-Z][A-Z0-9_]*|\([A-Z][A-Z0-9_]*\))")


class HostError(ValueError):
    """Text that is no host or address; `hint` says what would do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class HostAndPort(NamedTuple):
    """The authority of a URL taken apart; the port is empty if it is left out."""

    host: str
    port: str


def parse_host(host: str, text: str = "") -> str:
    """Return a host in its usual spelling: a name as written, an address in its shortest form.

    IPv6 may be in brackets, and is returned without; an IPv4 address that is written as one of
    IPv6 (`::ffff:10.0.0.1`) is returned as what it is.

    Args:
        host: what was written for the host.
        text: what it was written in, for messages.

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
    """Return the text under which all spellings of a host are one.

    A dot at the end stays: without it a name may be looked up below the machine's own domain.

    Raises:
        HostError: it is no host.
    """
    return parse_host(host).lower()


def split_host(text: str) -> HostAndPort | None:
    """Take `host`, `host:80` or `[::1]:80` apart; None if it is none of these."""
    match = _HOST_AND_PORT.fullmatch(text)
    return None if match is None else HostAndPort(match[1], match[2] or "")


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a text is, or None.

    An IPv4-mapped one is the IPv4 address that it stands for: what Python says of the mapped form
    (whether it is loopback, unspecified, private) differs between its versions.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def unfilled_hint(text: str) -> str:
    """Return what to write for a variable or template that nothing has filled in; or empty.

    What is before an @ or behind a question mark is not looked at: it may be a password.
    """
    text = text.rpartition("@")[2].partition("?")[0]
    if _TEMPLATE.search(text):
        return "a template has to be filled in before; a variable is written ${NAME}"
    found = _VARIABLE.search(text)
    if found is None:
        return ""
    return f"write ${{{next(filter(None, found.groups()))}}}"


def is_lone_variable(text: str) -> bool:
    """Whether a text is nothing but a variable as a shell writes it, or a template's braces."""
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
    """What an old or odd spelling of an address stands for."""
    labels = host.removesuffix(".").split(".")
    if all(label.isascii() and label.isdigit() for label in labels) and len(labels) == 4:
        plain = ".".join(str(int(label)) for label in labels)
        if all(int(label) <= 255 for label in labels):
            return f"write {plain}: without zeros in front and a dot at the end"
    if len(labels) == 1 and labels[0].isdigit():
        return "four numbers from 0 to 255, such as 10.0.0.1"
    try:
        meant = socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    except OSError:
        return "four numbers from 0 to 255, such as 10.0.0.1"
    return f"did you mean {meant}?"


def _name_hint(host: str) -> str:
    if not host.isascii():
        try:
            return f"write {_to_ascii(host)}"
        except UnicodeError:
            pass
    return "letters, digits, dots and hyphens, such as api.internal"


def _to_ascii(host: str) -> str:
    """An internationalised name as it is looked up (RFC 5891)."""
    import idna  # aiohttp brings it; nobody else needs it to start

    return idna.encode(host, uts46=True).decode("ascii")
