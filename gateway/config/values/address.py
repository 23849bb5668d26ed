"""Addresses to listen on and forward to: `host:port` and `http://host:port`, and hosts.

This module only parses text; nothing is resolved or opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from gateway.config.values.hosts import (
    HostError,
    is_lone_variable,
    parse_host,
    read_address,
    split_host,
    unfilled_hint,
)
from gateway.config.values.redaction import redact

MAX_URL: Final = 2_048
MAX_PORT: Final = 65_535
MAX_SOCKET_PATH: Final = 107
"""Bytes that `sun_path` has (unix(7)), without its terminator."""
DEFAULT_PORTS: Final[dict[str, int]] = {"http": 80, "https": 443}

_SWITCHES: Final = frozenset({"on", "true", "yes"})
"""Words that people write to request the default address, that of the admin listener."""
_OFF: Final = frozenset({"off", "no", "none", "false"})
"""Words that people write for no host; no host has such a name."""
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""IPv4 addresses as IPv6 sockets show them (RFC 4291, section 2.5.5.2)."""

_BRACKETS: Final = "an IPv6 host goes in brackets: http://[::1]:9000"

AddressError = HostError
"""Text that is not a valid address; `hint` says how to fix it."""


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address to listen on.

    Attributes:
        host: an address or a name; empty means all interfaces.
        port: 0 lets the system choose a free one.
    """

    host: str
    port: int

    @property
    def reachable(self) -> Address:
        """Return the address under which this machine reaches a listener on it."""
        everywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a word
        return Address(everywhere.get(self.host, self.host), self.port)

    @property
    def bare_host(self) -> str:
        """Return the host as in a URL: an IPv6 address in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.bare_host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A Unix socket to listen on.

    Attributes:
        path: the path of its file.
    """

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TargetOrigin:
    """Scheme, host and port of a URL without other parts."""

    scheme: Literal["http", "https"]
    host: str
    port: int


def lone_port(port: str) -> AddressError:
    """Return the hint for a port alone where a host and a port are expected."""
    hint = f"for example 127.0.0.1:{port}, or :{port} for all interfaces"
    return AddressError(f"{port} is a port without a host", hint)


def parse_address(text: str) -> Address:
    """Read `host:port`, `[::1]:8080` or `:8080` (all interfaces).

    Raises:
        AddressError: it is something else.
    """
    text = text.strip()
    _check_quotes(text)
    if "@" in text or "://" in text:
        message = f"{redact(text)!r} is a URL"
        raise AddressError(message, "an address is host:port, without a scheme")
    if text.startswith(("unix:", "/")):
        raise AddressError(f"{text!r} is not a TCP address", "for example 127.0.0.1:8080")
    if text.isdigit():
        raise lone_port(text)
    if text.count(":") > 1 and not text.startswith("["):
        raise AddressError(
            f"{text!r} has more than one colon", "an IPv6 host goes in brackets: [::1]:8080"
        )
    host, colon, port_text = text.rpartition(":")
    if not colon or host.startswith("[") != host.endswith("]"):
        is_switch = text.lower() in _SWITCHES
        usual = "127.0.0.1" if text.lower() in _OFF else text or "127.0.0.1"
        shown = "127.0.0.1:9901" if is_switch else f"{usual}:8080"
        raise AddressError(f"{text!r} has no port", f"for example {shown}")
    port = _parse_port(port_text, text)
    if host in {"", "*"}:
        return Address("", port)
    return Address(parse_host(host, text), port)


def parse_listener(text: str) -> Address | UnixAddress:
    """Read what `parse_address` does, or `unix:/run/sluice.sock`.

    Raises:
        AddressError: it is something else.
    """
    if not text.strip().startswith(("unix:", "/")):
        return parse_address(text)
    return parse_socket(text, "unix:/run/sluice.sock")


def parse_socket(text: str, example: str) -> UnixAddress:
    """Read `unix:/run/app.sock`.

    Raises:
        AddressError: it is something else; `example` is a valid one.
    """
    path = text.strip().removeprefix("unix:")
    lone = next(filter(is_lone_variable, path.split("/")), None)
    if lone is not None:
        raise AddressError(f"{lone!r} in a path is text", unfilled_hint(lone))
    if path == text.strip():
        raise AddressError(f"{path!r} is a path", f"write a Unix socket as unix:{path}")
    path = f"/{path.lstrip('/')}" if path.startswith("//") else path
    if path and not path.startswith("/"):
        message = f"the path of a socket must be absolute, and {path!r} is not"
        raise AddressError(message, f"for example {example}")
    if not path or path.endswith("/"):
        raise AddressError(
            f"{text.strip()!r} is not the path of a socket", f"for example {example}"
        )
    if len(path.encode()) > MAX_SOCKET_PATH:
        hint = f"at most {MAX_SOCKET_PATH} bytes"
        raise AddressError(f"the path of the socket is too long: {path!r}", hint)
    return UnixAddress(path)


def is_target(text: str) -> bool:
    """Return whether a text is meant as an address, and not as a name of an upstream."""
    return "://" in text or text.strip().startswith("unix:")


def parse_target(text: str) -> TargetOrigin | UnixAddress:
    """Read what `parse_origin` does, or `unix:/run/app.sock`.

    Raises:
        AddressError: it is something else.
    """
    text = text.strip()
    if text.startswith(("unix:", "/")):
        return parse_socket(text, "unix:/run/app.sock")
    scheme, _, rest = text.partition("://")
    if rest.startswith("unix:"):
        rest = rest.split(":")[1]
        message = f"a Unix socket is written without {scheme}://"
        raise AddressError(message, f"write unix:{rest}; requests keep their path")
    return parse_origin(text)


def same_target(text: str) -> str:
    """Return the normal form of a target; other text is returned as it is."""
    try:
        target = parse_target(text)
    except AddressError:
        return text.strip()
    if isinstance(target, UnixAddress):
        return str(target)
    return f"{target.scheme}://{Address(target.host.lower(), target.port)}"


def parse_origin(text: str) -> TargetOrigin:
    """Read `http://host[:port]` or `https://host[:port]`.

    Raises:
        AddressError: it is something else, or has a path, a query or credentials.
    """
    text = text.strip()
    _check_quotes(text)
    if len(text) > MAX_URL:
        raise AddressError("the URL is too long", f"at most {MAX_URL} characters")
    shown = redact(text)
    if re.search(r"[\s\x00-\x1f]", text):
        # urlsplit() removes some of them, and the rest may be another host.
        hint = unfilled_hint(text) or "for example http://127.0.0.1:9000"
        raise AddressError(f"{shown!r} has a blank in it", hint)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise AddressError(f"{shown!r} is not a URL", "for example http://127.0.0.1:9000") from None
    try:
        port = parts.port
    except ValueError:
        message = f"{shown!r} has an invalid port"
        is_bare = parts.netloc.count(":") > 1 and "[" not in parts.netloc
        usual = _BRACKETS if is_bare else f"use a port from 1 to {MAX_PORT}"
        hint = unfilled_hint(parts.netloc.rpartition(":")[2]) or usual
        raise AddressError(message, hint) from None
    if parts.scheme not in DEFAULT_PORTS or "://" not in text:
        raise AddressError(*_explain_scheme(parts, text, shown))
    if "@" in parts.netloc:
        raise AddressError(
            f"{shown!r} has credentials",
            "remove user and password; requests keep their own Authorization header",
        )
    if parts.path not in {"", "/"}:
        raise AddressError(
            f"{shown!r} has a path",
            (
                "write scheme, host and port; a route's add_prefix adds a path before that "
                "of requests"
            ),
        )
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise AddressError(
            f"{shown!r} has a query or fragment",
            "write scheme, host and port only; requests keep their query",
        )
    if port == 0:
        raise AddressError(f"{shown!r} has port 0", "use a port from 1 to 65535")
    place = split_host(parts.netloc)
    if place is None:
        raise AddressError(f"{shown!r} has no valid host", _BRACKETS)
    host = parse_host(place.host, shown)
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return TargetOrigin(scheme, host, port or DEFAULT_PORTS[scheme])


def parse_authority(text: str) -> str:
    """Return a valid value of a `Host` field, `host` or `host:port`, as it is written.

    Raises:
        AddressError: it is something else.
    """
    text = text.strip()
    if any(character in text for character in "/@?#"):
        raise AddressError(f"{redact(text)!r} is not a host", "for example app.internal")
    parse_origin(f"http://{text}")
    return text


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Read `10.0.0.0/8`, `fd00::/8`, or one address.

    A network of IPv4-mapped addresses, such as `::ffff:10.0.0.0/104`, becomes the IPv4 network, as
    addresses do before they are looked up.

    Raises:
        AddressError: it is something else, or has bits set outside its prefix.
    """
    text = text.strip()
    if "%" in text and ":" in text:
        # Addresses compared with networks have no zone: a zone would match on every interface.
        message = f"{text!r} names an interface, which networks cannot have"
        raise AddressError(message, "remove the part from the % on")
    try:
        return _unmapped(ip_network(text))
    except ValueError:
        pass
    try:
        whole = _unmapped(ip_network(text, strict=False))
    except ValueError:
        hint = unfilled_hint(text) or _network_hint(text)
        raise AddressError(f"{redact(text)!r} is not a network", hint) from None
    raise AddressError(f"{text!r} has bits set outside its prefix", f"did you mean {whole}?")


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        first = IPv4Address(int(network.network_address) & 0xFFFFFFFF)
        return IPv4Network((first, network.prefixlen - _MAPPED.prefixlen))
    return network


def _network_hint(text: str) -> str:
    if re.fullmatch(r"[0-9.]+(?:/[0-9]+)?", text):
        host, slash, prefix = text.partition("/")
        plain = ".".join(label.lstrip("0") or "0" for label in host.split("."))
        try:
            meant = ip_network(f"{plain}{slash}{prefix}", strict=False)
        except ValueError:
            pass
        else:
            return f"write {meant}: without leading zeros"
    if "," in text or len(text.split()) > 1:
        return "write several as a list: [10.0.0.0/8, 172.16.0.0/12]"
    return "for example 10.0.0.0/8, fd00::/8 or 192.0.2.1"


def parse_host_pattern(text: str) -> str:
    """Read the host of a route: `api.example.com`, `*.example.com` or an address; lower case.

    Raises:
        AddressError: it is something else.
    """
    text = text.strip()
    bare = text.removeprefix("*.")
    if "@" in text or "/" in text:
        message = f"{redact(text)!r} is not a host"
        raise AddressError(message, "use only a host, for example api.example.com")
    if text == "*" or text.lower() in _OFF:
        what = "any host" if text == "*" else "no host"
        raise AddressError(f"{text!r} is {what}", "remove the host")
    if (re.search(r"[^:]:[0-9]*$", bare) and bare.count(":") == 1) or "]:" in bare:
        hint = "remove it: routes ignore the port of a request's Host"
        raise AddressError(f"{text!r} has a port", hint)
    if "*" in bare:
        hint = "a wildcard must be the first label, and stands for one or more: *.example.com"
        raise AddressError(f"{text!r} has a wildcard that is not the first label", hint)
    if ":" in bare:
        return _parse_ipv6_pattern(bare, text)
    host = parse_host(bare, text).lower().rstrip(".")
    if text.startswith("*."):
        if re.fullmatch(r"[0-9.]+", host):
            raise AddressError(
                f"{text!r} has a wildcard before an address", "use it with names only"
            )
        return f"*.{host}"
    return host


def _parse_ipv6_pattern(bare: str, text: str) -> str:
    """Return an IPv6 address as `routing.host` does: IPv4-mapped ones stay as they are."""
    parse_host(bare, text)
    if "%" in bare:
        raise AddressError(f"{text!r} has a zone, which Host fields do not have", "remove it")
    if text.startswith("*."):
        raise AddressError(f"{text!r} has a wildcard before an address", "use it with names only")
    return f"[{IPv6Address(bare.strip('[]'))}]"


def is_ip_address(host: str) -> bool:
    """Return whether a host is an address, not a name that must be resolved."""
    return read_address(host) is not None


def listens_on(address: Address, host: str, port: int) -> bool:
    """Return whether a connection to `host:port` from this machine reaches a listener on `address`.

    Names other than `localhost` are compared as written; nothing is resolved.
    """
    if port != address.port or port == 0:
        return False
    if host.lower() == address.host.lower():
        return True
    return any(
        here == there
        or (here.version == there.version and here.is_unspecified and there.is_loopback)
        or (here.version == there.version and there.is_unspecified and here.is_loopback)
        for here in _addresses_of(address.host)
        for there in _addresses_of(host)
    )


def collide(first: Address, second: Address) -> bool:
    """Return whether the second listener cannot be opened beside the first."""
    if first.port != second.port or first.port == 0:
        return False
    if first.host.lower() == second.host.lower():
        return True
    return any(
        one.version == other.version
        and (one == other or one.is_unspecified or other.is_unspecified)
        for one in _addresses_of(first.host)
        for other in _addresses_of(second.host)
    )


def _addresses_of(host: str) -> list[IPv4Address | IPv6Address]:
    """Return the addresses that a host stands for, as far as known without resolving it."""
    if not host:
        return [IPv4Address(0), IPv6Address(0)]
    if host.lower().rstrip(".") == "localhost":
        return [IPv4Address("127.0.0.1"), IPv6Address("::1")]
    address = read_address(host)
    return [address] if address else []


def _parse_port(port_text: str, text: str) -> int:
    if not port_text:
        raise AddressError(f"{text!r} has no port", f"for example {text}8080")
    if not (port_text.isascii() and port_text.isdigit()) or len(port_text) > 5:
        hint = unfilled_hint(port_text) or f"use a number from 0 to {MAX_PORT}"
        raise AddressError(f"{port_text!r} is not a port", hint)
    port = int(port_text)
    if port > MAX_PORT:
        raise AddressError(f"{port} is not a port", f"use a number from 0 to {MAX_PORT}")
    return port


def _explain_scheme(parts: SplitResult, text: str, shown: str) -> tuple[str, str]:
    if "://" not in text:
        return f"{shown!r} is not a URL", f"for example http://{shown or '127.0.0.1:9000'}"
    if parts.scheme in {"ws", "wss"}:
        scheme = "https" if parts.scheme == "wss" else "http"
        return f"{parts.scheme!r} is not needed", f"write {scheme}://; upgrades pass through it"
    message = f"{parts.scheme!r} is not a scheme of an upstream"
    if parts.scheme in {"h2", "h2c", "grpc", "grpcs"}:
        return message, "use http:// or https://, and http2: true beside the targets"
    return message, "use http:// or https://"


def _check_quotes(text: str) -> None:
    """Refuse quotes that belong to a shell, or to a file of variables.

    Raises:
        AddressError: there are quotes.
    """
    if text[:1] in {"'", '"'} or text[-1:] in {"'", '"'}:
        bare = redact(text.strip("'\""))
        message = "the quotes are part of the text"
        raise AddressError(message, f"write {bare}; without quotes in a file of variables, too")
