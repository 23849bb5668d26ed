"""Listeners for the clients of other systems, whose limits are this gateway's.

Each is one entry of `listeners` and says with one key which system's protocol it speaks. What
the systems may say is in modules of their own (`frontend_...`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pydantic import Field, model_validator

from gateway.config.address import Address
from gateway.config.base import Model
from gateway.config.frontend_envoy_rls import EnvoyRlsConfig
from gateway.config.frontend_ratio import RatioConfig
from gateway.config.frontend_smockron import SmockronConfig
from gateway.config.frontend_throttr import ThrottrConfig
from gateway.config.shorthand import KEY
from gateway.config.values import ListenAddress, problem


class Kind(NamedTuple):
    """A protocol that a listener may speak.

    Attributes:
        port: where its clients look for a server.
        title: the system's name, for people.
        ports: how many ports it takes, from the first on.
        words: what its limits may be counted per, beside `all` and nothing at all.
        example: the shortest of its kind.
    """

    port: int
    title: str
    example: str
    ports: int = 1
    words: tuple[str, ...] = ()


KINDS: Final[Mapping[str, Kind]] = {
    "envoy_rls": Kind(
        8081,
        "Envoy's rate limit service",
        'envoy_rls: {domains: {shop: [{match: {user: "*"}, limit: 10/s}]}}',
    ),
    "ratio": Kind(50051, "ratio", "ratio: 100/m", words=("owner", "resource")),
    "smockron": Kind(10004, "Smockron", "smockron: {domains: {default: 1/s burst 10}}", ports=2),
    "throttr": Kind(9000, "Throttr", "throttr: v5"),
}
"""By the key that names it."""


class FrontendConfig(Model):
    """A listener for clients of another system."""

    bind: ListenAddress | None = Field(
        None,
        description="host:port; if left out the port that its clients expect, on this machine "
        "only.",
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
        return self

    @property
    def kind(self) -> str:
        """The key that says which protocol it speaks."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self.bind or Address("127.0.0.1", KINDS[self.kind].port)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All that it takes."""
        first = self.address
        if not first.port:
            return (first,)
        ports = range(first.port, first.port + KINDS[self.kind].ports)
        return tuple(Address(first.host, port) for port in ports)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that its callers are held to, each once."""
        named: Iterable[str] = getattr(getattr(self, self.kind), "policy_names", ())
        return tuple(dict.fromkeys(named))


def titles(listeners: Iterable[FrontendConfig]) -> list[str]:
    """A name for each listener, for metrics and logs: its kind, numbered where there are more."""
    seen: dict[str, int] = {}
    found = []
    for listener in listeners:
        number = seen[listener.kind] = seen.get(listener.kind, 0) + 1
        found.append(listener.kind if number == 1 else f"{listener.kind}-{number}")
    return found
