"""What holds for the URLs of all stores: hosts, ports, what nothing has filled in, and TLS."""

from __future__ import annotations

import re
from collections.abc import Mapping
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

_TEMPLATE: Final = re.compile(r"\{\{.*\}\}|\{%.*%\}", re.DOTALL)
_TLS_VALUES: Final = {
    "ssl_cert_reqs": ("none", "optional", "required"),
    "ssl_check_hostname": ("true", "false"),
}
"""redis-py takes every other text for true, such as `off`."""
_ALSO_KNOWN: Final = frozenset({"0", "f", "n", "no", "1", "t", "y", "yes"})


class StoreUrlError(ValueError):
    """A URL that names no store; `hint` says what would do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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
    scheme = parts.scheme
    if scheme in {"memory", "unix"}:
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


def check_tls(options: Mapping[str, str]) -> None:
    """See that options of TLS say what they seem to.

    Raises:
        StoreUrlError: one does not.
    """
    for name, known in _TLS_VALUES.items():
        value = options.get(name)
        if value is None or value in known:
            continue
        if name == "ssl_check_hostname" and value.lower() in {*known, *_ALSO_KNOWN}:
            continue
        raise StoreUrlError(f"{name} has another value than it may have", " or ".join(known))
