"""Listeners for the clients of other systems, whose limits are this gateway's.

Each is one entry of `listeners` and says with one key which system's protocol it speaks. What
the systems may say is in modules of their own (`frontend_...`).
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
    """A protocol that a listener may speak.

    Attributes:
        port: where its clients look for a server.
        title: the system's name, for people.
        is_grpc: whether that is gRPC.
        ports: how many ports it takes, from the first on.
        words: what its limits may be counted per, beside `all` and nothing at all.
        example: the shortest of its kind.
        instead_of_tls: what would do where its protocol has no TLS; empty if it has.
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
        instead_of_tls="a network that is encrypted itself, such as WireGuard",
    ),
    "throttr": Kind(
        9000,
        "Throttr",
        "throttr: v5",
        instead_of_tls="leave bind out, and let stunnel or HAProxy end TLS in front",
    ),
}
"""By the key that names it."""


_UNFIT: Final[Mapping[str, tuple[object, str, str]]] = {
    "key_password": (
        None,
        "gRPC takes no key that is encrypted",
        PLAIN_KEY,
    ),
    "min_version": ("1.2", "gRPC takes TLS 1.2 and 1.3, and no other choice", "leave it out"),
    "strict_sni": (
        False,
        "gRPC shows the first certificate to those who ask for another name",
        "leave it out",
    ),
    "client_strict": (False, "gRPC judges certificates in its own way", "leave it out"),
    "client_headers": (None, "there is no upstream to be told who a client is", "leave it out"),
}
"""Words of a listener's TLS that mean nothing with gRPC: what is as good as unsaid, and why."""


class FrontendConfig(Model):
    """A listener for clients of another system."""

    bind: ListenerAddress | None = Field(
        None,
        description="host:port, or unix:/path; if left out the port that its clients expect, on "
        "this machine only.",
    )
    mode: FileMode | None = Field(
        None, description="Of a Unix socket's file: who may connect, such as 0660."
    )
    tls: ListenerTls | None = Field(
        None,
        description="TLS, with envoy_rls and ratio: certificates, and those of clients.",
    )
    max_connection_age: Duration | None = Field(
        None,
        description="With envoy_rls and ratio: how old a connection may get before its client is "
        "asked to make a new one.",
    )
    max_connection_age_grace: Duration | None = Field(
        None, description="How long calls on it may take then; they are cut off after that."
    )
    envoy_rls: EnvoyRlsConfig | None = Field(
        None, description="Envoy's rate limit service: the limits of descriptors, by domain."
    )
    ratio: RatioConfig | None = Field(
        None, description="ratio: the limits of owners and resources; a limit alone is for all."
    )
    smockron: SmockronConfig | None = Field(
        None,
        description="A master of Smockron: the limits of domains. Gatekeepers report to its port, "
        "and listen at the one above.",
    )
    throttr: ThrottrConfig | None = Field(
        None,
        description="A Throttr server: records that its clients make, change and count down. The "
        "version alone will do.",
    )

    @model_validator(mode="after")
    def _check_kind(self) -> FrontendConfig:
        said = [kind for kind in KINDS if getattr(self, kind) is not None]
        for kind in KINDS:
            if not said and kind in self.model_fields_set:
                hint = f"such as {KINDS[kind].example}"
                raise problem(f"nothing is said of {kind}", hint, under=(kind,))
        if not said:
            hint = f"one of {', '.join(KINDS)}"
            raise problem("this listener does not say which protocol it speaks", hint)
        if len(said) > 1:
            message = f"a listener speaks one protocol, and this one says {' and '.join(said)}"
            raise problem(message, "a listener for each", under=(said[1], KEY))
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
                message = f"{kind.title} takes {kind.ports} ports, and there is none above this one"
                raise problem(message, f"up to {last}", under=("bind",))
            if self.mode is not None:
                message = "mode goes with a Unix socket, and this is a TCP address"
                raise problem(message, "leave it out, or bind: unix:/run/...", under=("mode",))
            return
        if kind.ports > 1:
            message = f"clients of {kind.title} connect to {kind.ports} ports, and to no file"
            raise problem(message, f"such as 127.0.0.1:{kind.port}", under=("bind",))

    def _check_age(self) -> None:
        kind = KINDS[self.kind]
        if self.max_connection_age is not None and not kind.is_grpc:
            message = f"connections of {kind.title}'s clients may get as old as they like"
            raise problem(message, "leave it out", under=("max_connection_age", KEY))
        if self.max_connection_age_grace is not None and self.max_connection_age is None:
            message = "max_connection_age_grace without max_connection_age: none is too old"
            hint = "such as max_connection_age: 1h"
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
            message = "a certificate that clients may show changes nothing here"
            hint = "client_certificates: required"
            raise problem(message, hint, under=("tls", "client_certificates"))

    @property
    def kind(self) -> str:
        """The key that says which protocol it speaks."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def address(self) -> Address | UnixAddress:
        """Where it listens."""
        return self.bind or Address("127.0.0.1", KINDS[self.kind].port)

    @property
    def addresses(self) -> tuple[Address | UnixAddress, ...]:
        """All that it takes."""
        first = self.address
        if isinstance(first, UnixAddress) or not first.port:
            return (first,)
        ports = range(first.port, first.port + KINDS[self.kind].ports)
        return tuple(Address(first.host, port) for port in ports)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that its callers are held to, each once."""
        named: Iterable[str] = getattr(getattr(self, self.kind), "policy_names", ())
        return tuple(dict.fromkeys(named))

    @property
    def debited(self) -> tuple[str, ...]:
        """Those of which callers may use more than they have, and say so afterwards."""
        return self.policies if self.envoy_rls is not None and self.envoy_rls.debits else ()


def titles(listeners: Iterable[FrontendConfig]) -> list[str]:
    """A name for each listener, for metrics and logs: its kind, numbered where there are more."""
    seen: dict[str, int] = {}
    found = []
    for listener in listeners:
        number = seen[listener.kind] = seen.get(listener.kind, 0) + 1
        found.append(listener.kind if number == 1 else f"{listener.kind}-{number}")
    return found
