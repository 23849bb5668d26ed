"""The normal form of a request's host.

Routes match on it and the key word `host` counts by it, so every spelling of a host gives the same
text, and anything that is not a host is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

from gateway.base.errors import BadRequestError

_MAX_NAME: Final = 253
"""Characters in a name, without the trailing dot (RFC 1035, section 2.3.4)."""

_MAX_PORT: Final = 65535

_split: Final = re.compile(
    # Underscores are not valid in host names on the internet, but occur in service names of
    # container networks.
    r"(?:(?P<name>[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*)\.?|\[(?P<v6>[0-9A-Fa-f:.]+)\])"
    r"(?::(?P<port>[0-9]{0,5}))?"
).fullmatch


@lru_cache(maxsize=2048)
def normal_host(raw: str) -> str:
    """Return the host in lower case, without port and trailing dot.

    IPv6 addresses are returned in brackets, in their shortest form. Names are letters,
    digits, hyphens and underscores; internationalised ones arrive as `xn--...`.

    Args:
        raw: the value of `Host`, or the authority of an absolute request target.

    Raises:
        BadRequestError: it is not a host, or is empty (RFC 9112, section 3.2).
    """
    parts = _split(raw)
    if parts is None or int(parts["port"] or 0) > _MAX_PORT:
        raise BadRequestError("The host is not valid", kind="host")
    name = parts["name"]
    if name is None:
        return _normal_ipv6(parts["v6"])
    if len(name) > _MAX_NAME:
        raise BadRequestError("The host is not valid", kind="host")
    return name.lower()


def _normal_ipv6(text: str) -> str:
    try:
        return f"[{IPv6Address(text)}]"
    except ValueError:
        raise BadRequestError("The host is not valid", kind="host") from None
