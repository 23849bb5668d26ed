"""What another configuration would change, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.base import Model
from gateway.config.values.words import join


def differences(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """Return what differs, in sentences; empty if nothing does."""
    named = [
        *_named("Route", *({one.name: one for one in each.routes} for each in (old, new))),
        *_named("Policy", old.policies, new.policies),
        *_named("Upstream", old.upstreams, new.upstreams),
    ]
    others = [one for one in _changed(old, new) if one not in {"routes", "policies", "upstreams"}]
    return [*named, *(f"{name} has changed." for name in others)]


def _named(what: str, old: Mapping[str, Model], new: Mapping[str, Model]) -> Iterator[str]:
    yield from (f"{what} {name} is gone." for name in old if name not in new)
    yield from (f"{what} {name} is new." for name in new if name not in old)
    for name in (one for one in new if one in old and old[one] != new[one]):
        yield f"{what} {name} has changed: {join(_changed(old[name], new[name]))}."


def _changed(old: Model, new: Model) -> list[str]:
    return [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]
