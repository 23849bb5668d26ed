"""What differs between two models, option by option, in the notation of a configuration.

Options are found through the fields of their models, so an option that is added needs no code here.
Which routes, policies and other parts have changed is for `differences`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from gateway.config.explaining.meaning import has_order, meant, meant_by, spellings
from gateway.config.explaining.notation import field, option, pairs
from gateway.config.models.listeners import CertificateConfig, ListenerTls
from gateway.config.models.upstreams import Target
from gateway.config.values.address import same_target
from gateway.config.values.base import Model
from gateway.systems.envoy.config import EnvoyRule
from gateway.systems.ratio.config import RatioRule

PAIR: Final = frozenset({"cert", "key", "key_password"})
"""A single certificate of a listener; several are `certificates`."""
_IDENTITIES: Final[Mapping[type[Model], tuple[str, Callable[[Any], str]]]] = {
    CertificateConfig: ("certificate", lambda one: str(one.cert)),
    EnvoyRule: ("rule", lambda rule: pairs(rule.match)),
    RatioRule: ("rule", lambda rule: f"{rule.owner}:{rule.resource}"),
    Target: ("target", lambda target: same_target(target.url)),
}
"""What the entries of a list are called, and the name of each, in one spelling."""


def changed_options(
    old: Model, new: Model, path: str = "", without: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield what differs in two models of one type.

    Args:
        old: the model before.
        new: the model after.
        path: to the models, for example `queue`; empty at the top.
        without: options that are not compared.
    """
    same = spellings(old, new) | without
    if isinstance(old, ListenerTls) and isinstance(new, ListenerTls) and _are_listed(old, new):
        same |= PAIR | {"certificates"}
        yield from _list(CertificateConfig, f"{path}.certificates", old.pairs, new.pairs)
    for name in type(old).model_fields:
        if name not in same:
            inner = f"{path}.{name}" if path else name
            yield from changed(type(old), name, getattr(old, name), getattr(new, name), inner)


def _are_listed(old: ListenerTls, new: ListenerTls) -> bool:
    """Return whether a single certificate has become one of several, or the other way round."""
    return (old.cert is None) != (new.cert is None) and bool(old.pairs and new.pairs)


def changed(model: type[Model], name: str, before: Any, after: Any, path: str) -> Iterator[str]:
    """Yield what differs in two values of an option.

    Args:
        model: the model that has the option.
        name: its name there.
        before: the old value.
        after: the new value.
        path: to the option, for example `queue.max_wait`.
    """
    if before == after or meant_by(model, name, before) == meant_by(model, name, after):
        return
    if isinstance(before, Model) and isinstance(after, Model):
        yield from changed_options(before, after, path)
        return
    if before and after and isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _entries(path, before, after)
        return
    if before and after and type(before) is type(after) is tuple:
        kinds = {type(one) for one in (*before, *after)}
        if len(kinds) == 1 and (kind := kinds.pop()) in _IDENTITIES:
            yield from _list(kind, path, before, after)
            return
        if not has_order(model, name) and len(before) + len(after) > 2:
            yield from _set(model, name, before, after, path)
            return
    shown = option(model, name).show
    yield becomes(path, shown(before), shown(after))


def becomes(path: str, before: str, after: str) -> str:
    """Return that a value has changed; the values are not repeated if they look the same."""
    return f"{path} has changed" if before == after else f"{path}: {before} becomes {after}"


def _entries(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs in two mappings."""
    for key in {**before, **after}:
        if key not in after:
            yield f"{path}.{key} is removed"
        elif key not in before:
            yield f"{path}.{key}: {field(key, after[key])} is added"
        elif isinstance(before[key], Model) and isinstance(after[key], Model):
            yield from changed_options(before[key], after[key], f"{path}.{key}")
        elif _is_list_of_models(before[key]) and _is_list_of_models(after[key]):
            yield from _list(type(before[key][0]), f"{path}.{key}", before[key], after[key])
        elif meant(before[key]) != meant(after[key]):
            yield becomes(f"{path}.{key}", field(key, before[key]), field(key, after[key]))


def _is_list_of_models(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and type(value[0]) in _IDENTITIES


def _list(
    kind: type[Model], path: str, before: Iterable[Model], after: Iterable[Model]
) -> Iterator[str]:
    """Yield what differs in two lists of models that have identities."""
    word, name = _IDENTITIES[kind]
    each_one = path[:-1] if path.endswith(f"{word}s") else f"{path}: {word}"
    old, new = _numbered(before, name), _numbered(after, name)
    yield from (f"{each_one} {one} is removed" for one in old if one not in new)
    for one in new:
        if one not in old:
            weight = getattr(new[one], "weight", 1)
            extra = f" (weight {weight})" if weight != 1 else ""
            yield f"{each_one} {one}{extra} is added"
        elif meant(old[one]) != meant(new[one]):
            found = changed_options(old[one], new[one])
            yield from (f"{each_one} {one}: {each}" for each in found)
    if [one for one in old if one in new] != [one for one in new if one in old]:
        yield f"{path}: the order has changed"


def _numbered(models: Iterable[Model], name: Callable[[Any], str]) -> dict[str, Model]:
    """Return models by their names; equal names are numbered."""
    found: dict[str, Model] = {}
    for model in models:
        unique, number = name(model), 1
        while unique in found:
            number += 1
            unique = f"{name(model)} #{number}"
        found[unique] = model
    return found


def _set(
    model: type[Model], name: str, before: tuple[Any, ...], after: tuple[Any, ...], path: str
) -> Iterator[str]:
    """Yield what differs in two lists whose order does not matter."""
    shown = option(model, name).show
    gone = tuple(one for one in before if one not in after)
    more = tuple(one for one in after if one not in before)
    if gone:
        yield f"{path}: {shown(gone)} is removed"
    if more:
        yield f"{path}: {shown(more)} is added"
    if not gone and not more:
        yield becomes(path, shown(before), shown(after))
