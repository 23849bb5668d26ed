"""Listeners for clients of other systems, which this gateway limits.

Each is one entry of `listeners`, with one key that names the system's protocol. The keys of each
system are in its own module (`gateway/systems/NAME/config.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pydantic import Field, model_validator

from gateway.config.models.listeners import FileMode, ListenerTls
from gateway.config.values.address import MAX_PORT, Address, UnixAddress
from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.places import ListenerAddress
from gateway.config.values.types import Duration, problem
from gateway.net.tls.texts import PLAIN_KEY
from gateway.systems.envoy.config import EnvoyRlsConfig
from gateway.systems.ratio.config import RatioConfig
from gateway.systems.smockron.config import SmockronConfig
from gateway.systems.throttr.config import ThrottrConfig


class Kind(NamedTuple):
    """A protocol of listeners.

    Attributes:
        port: its default port.
        title: the system's name, for people.
        is_grpc: whether it is based on gRPC.
        ports: how many consecutive ports it uses.
        words: the keys that its limits may be counted per, besides `all` and none.
        example: the shortest valid listener.
        instead_of_tls: an alternative if its protocol has no TLS; otherwise empty.
    """

    port: int
    title: str
    example: str
    is_grpc: bool = False
    ports: int = 1
    words: tuple[str, ...] = ()
    instead_of_tls: str = ""


KINDS: Final[Mapping[str, Kind]] = {
    "envoy_rls": Kind(
        8081,
        "Envoy's rate limit service",
        'envoy_rls: {domains: {shop: [{match: {user: "*"}, limit: 10/s}]}}',
        is_grpc=True,
    ),
    "ratio": Kind(50051, "ratio", "ratio: 100/m", is_grpc=True, words=("owner", "resource")),
    "smockron": Kind(
        10004,
        "Smockron",
        "smockron: {domains: {default: 1/s burst 10}}",
        ports=2,
        instead_of_tls="use a network that is encrypted itself, such as WireGuard",
    ),
    "throttr": Kind(
        9000,
        "Throttr",
        "throttr: v5",
        instead_of_tls="remove bind, and terminate TLS in front with stunnel or HAProxy",
    ),
}
"""By the key that names it."""


_UNFIT: Final[Mapping[str, tuple[object, str, str]]] = {
    "key_password": (
        None,
        "gRPC does not support encrypted keys",
        PLAIN_KEY,
    ),
    "min_version": ("1.2", "gRPC always allows TLS 1.2 and 1.3", "remove it"),
    "strict_sni": (
        False,
        "gRPC shows the first certificate to clients that ask for an unknown name",
        "remove it",
    ),
    "client_strict": (False, "gRPC verifies certificates by its own rules", "remove it"),
    "client_headers": (None, "there is no upstream to send the client's identity to", "remove it"),
}
"""TLS options that have no effect with gRPC: the harmless value, and the reason."""


class FrontendConfig(Model):
    """A listener for clients of another system."""

    bind: ListenerAddress | None = Field(
        None,
        description="host:port, or unix:/path; default: the usual port of the protocol, on this "
        "machine only.",
    )
    mode: FileMode | None = Field(
        None, description="The mode of a Unix socket's file: who may connect, such as 0660."
    )
    tls: ListenerTls | None = Field(
        None,
        description="TLS, with envoy_rls and ratio: certificates of the gateway and of clients.",
    )
    max_connection_age: Duration | None = Field(
        None,
        description="With envoy_rls and ratio: the age at which clients are asked to open a new "
        "connection.",
    )
    max_connection_age_grace: Duration | None = Field(
        None,
        description="How long calls on such a connection may then take before they are cut off.",
    )
    envoy_rls: EnvoyRlsConfig | None = Field(
        None, description="Envoy's rate limit service: the limits of descriptors, by domain."
    )
    ratio: RatioConfig | None = Field(
        None,
        description="ratio: the limits of owners and resources; a single limit applies to all.",
    )
    smockron: SmockronConfig | None = Field(
        None,
        description="A Smockron master: the limits of domains. Gatekeepers report to its port, and "
        "subscribe to the port above.",
    )
    throttr: ThrottrConfig | None = Field(
        None,
        description="A Throttr server: records that its clients create, change and count down. The "
        "version alone is enough.",
    )

    @model_validator(mode="after")
    def _check_kind(self) -> FrontendConfig:
        said = [kind for kind in KINDS if getattr(self, kind) is not None]
        for kind in KINDS:
            if not said and kind in self.model_fields_set:
                hint = f"for example {KINDS[kind].example}"
                raise problem(f"{kind} has no value", hint, under=(kind,))
        if not said:
            hint = f"use one of {', '.join(KINDS)}"
            raise problem("this listener has no protocol", hint)
        if len(said) > 1:
            message = f"a listener has one protocol, and this one has {' and '.join(said)}"
            raise problem(message, "write one listener for each", under=(said[1], KEY))
        self._check_bind()
        self._check_age()
        if self.tls is not None:
            self._check_tls(self.tls)
        return self

    def _check_bind(self) -> None:
        kind = KINDS[self.kind]
        if not isinstance(self.bind, UnixAddress):
            last = MAX_PORT + 1 - kind.ports
            if self.bind is not None and self.bind.port > last:
                message = (
                    f"{kind.title} uses {kind.ports} consecutive ports, and this is the last one"
                )
                raise problem(message, f"use a port up to {last}", under=("bind",))
            if self.mode is not None:
                message = "mode is for Unix sockets, and this is a TCP address"
                raise problem(message, "remove it, or use bind: unix:/run/...", under=("mode",))
            return
        if kind.ports > 1:
            message = f"clients of {kind.title} connect to {kind.ports} ports, not to a file"
            raise problem(message, f"for example 127.0.0.1:{kind.port}", under=("bind",))

    def _check_age(self) -> None:
        kind = KINDS[self.kind]
        if self.max_connection_age is not None and not kind.is_grpc:
            message = f"connections of {kind.title}'s clients have no maximum age"
            raise problem(message, "remove it", under=("max_connection_age", KEY))
        if self.max_connection_age_grace is not None and self.max_connection_age is None:
            message = "max_connection_age_grace has no effect without max_connection_age"
            hint = "for example max_connection_age: 1h"
            raise problem(message, hint, under=("max_connection_age_grace", KEY))

    def _check_tls(self, tls: ListenerTls) -> None:
        kind = KINDS[self.kind]
        if kind.instead_of_tls:
            message = f"the protocol of {kind.title}'s clients has no TLS"
            raise problem(message, kind.instead_of_tls, under=("tls", KEY))
        for word, (unsaid, message, hint) in _UNFIT.items():
            if getattr(tls, word) != unsaid:
                raise problem(message, hint, under=("tls", word))
        for index, one in enumerate(tls.certificates):
            if one.key_password is not None:
                _, message, hint = _UNFIT["key_password"]
                where = ("tls", "certificates", index, "key_password")
                raise problem(message, hint, under=where)
        if tls.client_certificates == "optional":
            message = "optional client certificates have no effect here"
            hint = "use client_certificates: required"
            raise problem(message, hint, under=("tls", "client_certificates"))

    @property
    def kind(self) -> str:
        """The key that names its protocol."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def address(self) -> Address | UnixAddress:
        """The address it listens on."""
        return self.bind or Address("127.0.0.1", KINDS[self.kind].port)

    @property
    def addresses(self) -> tuple[Address | UnixAddress, ...]:
        """All addresses that it uses."""
        first = self.address
        if isinstance(first, UnixAddress) or not first.port:
            return (first,)
        ports = range(first.port, first.port + KINDS[self.kind].ports)
        return tuple(Address(first.host, port) for port in ports)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that apply to its clients, each once."""
        named: Iterable[str] = getattr(getattr(self, self.kind), "policy_names", ())
        return tuple(dict.fromkeys(named))

    @property
    def debited(self) -> tuple[str, ...]:
        """The policies whose clients may exceed their limit and report it afterwards."""
        return self.policies if self.envoy_rls is not None and self.envoy_rls.debits else ()


def titles(listeners: Iterable[FrontendConfig]) -> list[str]:
    """A name for each listener in metrics and logs: its kind, numbered if there are several."""
    seen: dict[str, int] = {}
    found = []
    for listener in listeners:
        number = seen[listener.kind] = seen.get(listener.kind, 0) + 1
        found.append(listener.kind if number == 1 else f"{listener.kind}-{number}")
    return found
