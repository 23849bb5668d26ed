"""Checks for the URLs of all stores: hosts, ports, and variables that were not replaced."""

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
    """Refuse templates and variables of other programs in a URL.

    Raises:
        StoreUrlError: there is one; the text around it is not shown, as it may be a password.
    """
    if _TEMPLATE.search(text):
        hint = "fill in the template first, or write variables as ${NAME}"
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
            hint = f"{unfilled_hint(value)}; a literal $ is written %24"
            message = f"the {what} of the store is a variable that is not replaced"
            raise StoreUrlError(message, hint)


def check_hosts(parts: SplitResult, text: str) -> None:
    """Check that all hosts and ports are valid.

    Raises:
        StoreUrlError: one is not.
    """
    if not parts.netloc:
        return
    if re.search(r"[\s\x00-\x1f\x7f]", text):
        # urlsplit() removes some of them, and the rest may be another host.
        hint = unfilled_hint(parts.netloc.rpartition("@")[2]) or "remove it"
        raise StoreUrlError(f"{redact(text)!r} has a blank in it", hint)
    for name in parts.netloc.rpartition("@")[2].split(","):
        place = split_host(name)
        hint = unfilled_hint(name)
        if place is None:
            if not hint and name.count(":") > 1:
                hint = "write an IPv6 host in brackets: [::1]"
            raise StoreUrlError(f"{redact(text)!r} has no valid host and port", hint)
        port = int(place.port[:9] or 1)
        if not 0 < port <= MAX_PORT:
            # Port 0 taken for none would lead to another server: the one on the default port.
            message = f"{redact(text)!r} has port {port}"
            raise StoreUrlError(message, f"use a port from 1 to {MAX_PORT}")
        try:
            parse_host(place.host or "left-out")
        except HostError as error:
            raise StoreUrlError(f"the host of the store: {error.message}", error.hint) from None
