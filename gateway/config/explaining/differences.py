"""What another configuration would change, in sentences.

The models are compared, not the texts: a default that is written out is no difference. Every option
is found through the fields of its model, so an option that is added needs no code here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.config.models.frontends import titles
from gateway.config.models.gateway import GatewayConfig, Target
from gateway.config.values.base import Model
from gateway.config.values.redaction import redact
from gateway.config.values.types import LimitLine
from gateway.config.values.units import write_number
from gateway.config.values.words import join

NAMED: Final = frozenset({"routes", "policies", "upstreams", "listen", "listeners"})
"""Sections whose entries are compared by their names."""


def differences(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """Return what differs, in sentences; empty if nothing does.

    Passwords in URLs and the values of header fields are not shown. Other secrets that the files
    refer to are for the caller to hide.
    """
    found = [
        *_routes(old, new),
        *_policies(old, new),
        *_named("Upstream", old.upstreams, new.upstreams),
        *_named(
            "Listener", *({str(one.address): one for one in each.listen} for each in (old, new))
        ),
        *_named("Listener", *(_frontends(each) for each in (old, new))),
        *_store(old, new),
    ]
    told = {*NAMED, "store", "domain"}
    for name in type(old).model_fields:
        if name not in told:
            found += _options(name, old, new, name)
    only_later = "It takes effect after a restart or an upgrade only."
    found += [f"{one} {only_later}" for one in needs_restart(old, new)]
    if not found and old != new:
        found.append("The order of entries has changed.")
    return found


def needs_restart(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """Return what a running gateway cannot take over, in sentences."""
    before, after = old.server.workers, new.server.workers
    return [] if before == after else [f"server.workers: {before} becomes {after}."]


def _routes(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    before, after = ({one.name: one for one in each.routes} for each in (old, new))
    yield from _named("Route", before, after)
    both = [name for name in before if name in after]
    if both != [name for name in after if name in before]:
        yield "The order of the routes has changed."


def _policies(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    """Yield what differs in policies; a limit that is written in a route has the route's name."""
    users: dict[str, list[str]] = {}
    for route in new.routes:
        for name in route.policies:
            users.setdefault(name, []).append(route.name)
    for sentence, name in _entries("Policy", old.policies, new.policies):
        routes = [one for one in users.get(name, []) if one != name]
        yield sentence + (f" It applies to {join(routes)}." if routes else "")


def _frontends(config: GatewayConfig) -> dict[str, Model]:
    named = zip(titles(config.listeners), config.listeners, strict=True)
    return {f"{name} at {one.address}": one for name, one in named}


def _store(old: GatewayConfig, new: GatewayConfig) -> Iterator[str]:
    yield from _options("store", old, new, "store")
    yield from _options("domain", old, new, "domain")
    if old.domain != new.domain or old.store.url.split("?")[0] != new.store.url.split("?")[0]:
        yield "Counts begin anew, unless they were in the new store before."


def _named(what: str, old: Mapping[str, Model], new: Mapping[str, Model]) -> Iterator[str]:
    return (sentence for sentence, _ in _entries(what, old, new))


def _entries(
    what: str, old: Mapping[str, Model], new: Mapping[str, Model]
) -> Iterator[tuple[str, str]]:
    """Yield what differs in entries that have names, each sentence with the name."""
    yield from ((f"{what} {name} is gone.", name) for name in old if name not in new)
    yield from ((f"{what} {name} is new.", name) for name in new if name not in old)
    for name in (one for one in new if one in old and old[one] != new[one]):
        found = list(changes("", old[name], new[name]))
        yield f"{what} {name}: {'; '.join(found) or 'its order has changed'}.", name


def _options(name: str, old: Model, new: Model, path: str) -> Iterator[str]:
    yield from (f"{one}." for one in _field(path, type(old), name, old, new))


def changes(path: str, old: Model, new: Model) -> Iterator[str]:
    """Yield what differs in two models, option by option, with the path to each."""
    if type(old) is not type(new):
        yield f"{path or 'its kind'} has changed"
        return
    for name in type(old).model_fields:
        yield from _field(f"{path}.{name}" if path else name, type(old), name, old, new)


def _field(path: str, model: type[Model], name: str, old: Model, new: Model) -> Iterator[str]:
    before, after = getattr(old, name), getattr(new, name)
    if before == after:
        return
    if isinstance(before, Model) and isinstance(after, Model):
        yield from changes(path, before, after)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _mapping(path, before, after)
    elif path != "server.workers":
        info = model.model_fields[name]
        kind = f"{info.annotation!r} {info.metadata!r}"
        yield f"{path}: {_text(before, kind)} becomes {_text(after, kind)}"


def _mapping(
    path: str, before: Mapping[object, object], after: Mapping[object, object]
) -> Iterator[str]:
    for key in {**before, **after}:
        one, other = before.get(key), after.get(key)
        if one == other:
            continue
        if isinstance(one, Model) and isinstance(other, Model):
            yield from changes(f"{path}.{key}", one, other)
        elif one is None or other is None:
            yield f"{path}.{key} is {'new' if one is None else 'gone'}"
        else:
            # The value of a header field may be a credential.
            yield f"{path}.{key} has changed"


def _text(value: object, kind: str) -> str:
    """Return a value as a file would have it, as far as that is known.

    Args:
        value: of an option.
        kind: the description of its type, which names the unit of a number.
    """
    if value is None or value in ((), "", {}):
        return "none"
    if isinstance(value, LimitLine):
        return value.text
    if isinstance(value, Target):
        return value.url if value.weight == 1 else f"{value.url} (weight {value.weight})"
    if isinstance(value, Model):
        fields = type(value).model_fields
        parts = {name: getattr(value, name) for name in fields if name in value.model_fields_set}
        shown = (
            f"{name}: {_text(one, f'{fields[name].annotation!r} {fields[name].metadata!r}')}"
            for name, one in parts.items()
        )
        return f"{{{', '.join(shown)}}}"
    if isinstance(value, Mapping | tuple | frozenset):
        # Only the names of a mapping: the value of a header field may be a credential.
        return join([_text(one, kind) for one in value])
    if isinstance(value, bool):
        value = "on" if value else "off"
    return redact(str(write_number(value, kind) if isinstance(value, int) else value))
