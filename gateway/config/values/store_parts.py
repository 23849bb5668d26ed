"""What holds for the URLs of all stores: hosts, ports, and variables that nothing has filled in."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult

from gateway.config.values.address import MAX_PORT
from gateway.config.values.hosts import (
    HostError,
    is_lone_variable,
    parse_host,
    split_host,
    unfilled_hint,
)
from gateway.config.values.redaction import redact
from gateway.stores.urls import StoreUrlError

_TEMPLATE: Final = re.compile(r"\{\{.*\}\}|\{%.*%\}", re.DOTALL)


def check_filled(text: str) -> None:
    """See that no template and no variable in another program's spelling is left in a URL.

    Raises:
        StoreUrlError: one is; what it is in is not said, as it may be a password.
    """
    if _TEMPLATE.search(text):
        hint = "fill the template in before, or write variables as ${NAME}"
        raise StoreUrlError("the URL of the store is a template", hint)
    before, at, after = text.partition("://")[2].rpartition("@")
    user, _, password = before.partition(":")
    path, _, query = after.partition("?")
    values = [option.partition("=")[2] for option in query.split("&")]
    for what, values_of in (
        ("user", [user] if at else []),
        ("password", [password] if at else []),
        ("path", path.split("/")[1:]),
        ("option", values),
    ):
        for value in filter(is_lone_variable, values_of):
            hint = f"{unfilled_hint(value)}; a plain $ is written %24"
            message = f"the {what} of the store is a variable that nothing replaces"
            raise StoreUrlError(message, hint)


def check_hosts(parts: SplitResult, text: str) -> None:
    """See that every host is one, and every port.

    Raises:
        StoreUrlError: one is not.
    """
    if not parts.netloc:
        return
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        # urlsplit() takes some of them out, and what is left may be another host.
        hint = unfilled_hint(parts.netloc.rpartition("@")[2]) or "leave it out"
        raise StoreUrlError(f"{redact(text)!r} has a blank in it", hint)
    for name in parts.netloc.rpartition("@")[2].split(","):
        place = split_host(name)
        hint = unfilled_hint(name)
        if place is None:
            if not hint and name.count(":") > 1:
                hint = "an IPv6 host goes in brackets: [::1]"
            raise StoreUrlError(f"{redact(text)!r} has no valid host and port", hint)
        port = int(place.port[:9] or 1)
        if not 0 < port <= MAX_PORT:
            # Port 0 taken for none would lead to another server: the one on the usual port.
            message = f"{redact(text)!r} has port {port}"
            raise StoreUrlError(message, f"a port from 1 to {MAX_PORT}")
        try:
            parse_host(place.host or "left-out")
        except HostError as error:
            raise StoreUrlError(f"the host of the store: {error.message}", error.hint) from None
