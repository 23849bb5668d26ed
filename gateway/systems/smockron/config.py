"""The configuration of a Smockron master.

Gatekeepers report the requests of each domain, and learn until when to hold which client:

    smockron:
      domains:
        default: 1/s burst 10
        api:
          limits: [10/s burst 20, 1000/h burst 100]
          log: true
        seen: {}

A domain without limits is only logged. Limits count the identifier that a gatekeeper sends; `per
all` counts all of the domain's requests together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import Field, field_validator

from gateway.config.values.base import Model
from gateway.config.values.shorthand_place import ShorthandPlace
from gateway.config.values.types import ListOf, Positive, Switch, problem
from gateway.systems.smockron.codec import MAX_NAME

USUAL: Final = {"algorithm": "paced_history"}
"""Defaults for limits of domains: Smockron's own algorithm."""


class SmockronDomain(Model):
    """The treatment of the requests of one domain."""

    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of policies; a limit may be written here instead, as in a route."
    )
    log: Switch = Field(
        False,
        description="Whether every message is logged, up to a number of lines per second; always "
        "on for a domain without limits.",
    )


class SmockronConfig(Model):
    """The domains that gatekeepers report about."""

    domains: dict[str, SmockronDomain] = Field(
        min_length=1,
        description="By name, the limits of each: a limit, a list of them, or a mapping with more "
        "options; nothing for a domain that is only logged.",
    )
    max_connections: Positive = Field(
        1024,
        description="The most connections of gatekeepers to each of the two ports; further ones "
        "are refused.",
    )

    @field_validator("domains")
    @classmethod
    def _check_names(cls, domains: dict[str, SmockronDomain]) -> dict[str, SmockronDomain]:
        for name in domains:
            if not name or "\0" in name or len(name.encode("utf-8", "replace")) > MAX_NAME:
                message = "this cannot be the name of a domain"
                raise problem(message, f"up to {MAX_NAME} bytes, such as default", under=(name,))
        return domains

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The names of its domains' policies, each once."""
        named = [name for domain in self.domains.values() for name in domain.policies]
        return tuple(dict.fromkeys(named))


def find_limits(data: Any, listener: str) -> tuple[Any, list[ShorthandPlace]]:
    """Return the domains of plain data in their long form, and the policies made of their limits.

    The policies are named after the listener and the domain.
    """
    domains = data.get("domains") if isinstance(data, Mapping) else None
    if not isinstance(domains, Mapping):
        return data, []
    long = {name: _long(said) for name, said in domains.items()}
    places = [
        ShorthandPlace(("domains", name), f"{listener}/{quote(str(name), safe=' ')}".strip(), USUAL)
        for name, said in long.items()
        if isinstance(said, Mapping)
    ]
    return {**data, "domains": long}, places


def _long(said: object) -> object:
    if said is None:
        return {}
    if isinstance(said, str):
        return {"limit": said}
    return {"limits": said} if isinstance(said, list | tuple) else said
