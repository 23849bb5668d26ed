"""Converts the configuration of Envoy's rate limit service to an `envoy_rls` listener.

The tree of descriptors becomes a list of rules, one for each descriptor that has a limit or ends
without one. The listener looks rules up as the service does, so a rule is needed for descriptors
that end without a limit: it exempts requests that a sibling without a value would otherwise limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gateway.base.errors import Problem
from gateway.config.checking.check import Source
from gateway.config.reading.nodes import FilePlace
from gateway.importing import Imported
from gateway.importing.envoy_descriptors import (
    UNITS,
    EnvoyDescriptorConfig,
    EnvoyDomainConfig,
    RateLimit,
    read_domains,
)
from gateway.importing.reading import in_order
from gateway.importing.writing import comment, data, mapping, quoted, sequence
from gateway.limits.notation import MAX_COUNT, MAX_PER_SECOND

WIDTH: Final = 100
"""A longer rule has a line for each of its keys."""
INDENT: Final = 10

_NO_EQUAL: Final = {
    "detailed_metric": "detailed_metric has no equivalent: metrics are by rule, not by value",
    "value_to_metric": "value_to_metric has no equivalent: metrics are by rule, not by value",
}


class _Difference(NamedTuple):
    """A difference between the two configurations."""

    place: FilePlace
    message: str


class _ImportedRule(NamedTuple):
    """A rule of the listener: its keys after `match`, as written, and the comments above it."""

    match: tuple[tuple[str, str], ...]
    fields: tuple[tuple[str, str], ...]
    notes: tuple[_Difference, ...]


def import_envoy_ratelimit(sources: Sequence[Source]) -> Imported:
    """Convert files of the service into a configuration.

    Args:
        sources: its YAML files; those of one domain are merged.

    Raises:
        ConfigError: the service would refuse them, or a limit has no number.
    """
    of_files: list[Problem] = []
    domains = read_domains(sources, of_files)
    rules = {domain.name: list(_rules_of(domain)) for domain in domains}
    notes = [note for found in rules.values() for rule in found for note in rule.notes]
    text = _head([source.file for source in sources])
    fields = {name for found in rules.values() for rule in found for name, _ in rule.fields}
    if "metadata" in fields:
        text += "      dynamic_metadata: true  # as RESPONSE_DYNAMIC_METADATA says\n"
    text += "      domains:\n"
    for name, found in rules.items():
        text += f"{' ' * (INDENT - 2)}{quoted(name)}:\n{''.join(map(_written, found))}"
    return Imported(text, in_order([*of_files, *_merge_differences(notes)]))


def _head(files: Sequence[str]) -> str:
    return (
        comment(f"Made by `sluice import envoy-ratelimit` from {', '.join(files)}.", 0)
        + comment(
            "The service reads its settings from environment variables, not from these files:", 0
        )
        + comment("docs/import.md lists the equivalent of each.", 0)
        + "\n# store: redis://127.0.0.1:6379/0  # as in REDIS_URL; default: in memory\n"
        + "listeners:\n"
        + "  - bind: 127.0.0.1:8081  # 0.0.0.0:8081 for Envoys on other machines\n"
        + "    envoy_rls:\n"
    )


def _rules_of(domain: EnvoyDomainConfig) -> Iterator[_ImportedRule]:
    named = {each.limit.name for each in _all(domain.descriptors) if each.limit and each.limit.name}
    yield from _rules(domain.descriptors, (), named)


def _all(descriptors: Sequence[EnvoyDescriptorConfig]) -> Iterator[EnvoyDescriptorConfig]:
    for each in descriptors:
        yield each
        yield from _all(each.children)


def _rules(
    descriptors: Sequence[EnvoyDescriptorConfig],
    above: tuple[EnvoyDescriptorConfig, ...],
    named: set[str],
) -> Iterator[_ImportedRule]:
    """Yield rules for the descriptors of one level and all below, in order."""
    # A lone * matches everything after it; a descriptor without a value comes last.
    takers: dict[str, int] = {}
    for at, each in enumerate(descriptors):
        if each.value and not each.value.strip("*"):
            takers.setdefault(each.key, at)
    for at, each in enumerate(descriptors):
        taker = takers.get(each.key, at)
        if (taker < at and "*" in each.value) or (taker != at and not each.value):
            first = descriptors[taker]
            message = (
                f"{_shown(each)} can never match: {_shown(first)} in line "
                f"{first.place.line} matches first"
            )
            # There is no rule to attach this note to.
            yield _ImportedRule((), (), (_Difference(each.place, message),))
            continue
        path = (*above, each)
        notes = tuple(_differences(path, named))
        if each.limit is not None or not each.children:
            yield _ImportedRule(_match(path), tuple(_fields(path, named)), notes)
        elif notes:
            yield _ImportedRule((), (), notes)
        yield from _rules(each.children, path, named)


def _shown(descriptor: EnvoyDescriptorConfig) -> str:
    return f"{descriptor.key}={descriptor.value}" if descriptor.value else descriptor.key


def _match(path: Sequence[EnvoyDescriptorConfig]) -> tuple[tuple[str, str], ...]:
    return tuple((each.key, each.value or "*") for each in path)


def _fields(path: Sequence[EnvoyDescriptorConfig], named: set[str]) -> Iterator[tuple[str, str]]:
    """Return the keys of a rule after `match`."""
    limit = path[-1].limit
    if limit is None or not limit.unit:
        yield "unlimited", "true"
    elif not limit.requests:
        yield "refuse", "true"
    else:
        yield "limit", f"{_count(limit)}/{UNITS[limit.unit][1]}"
        yield "algorithm", "fixed_window"
    if limit is None:
        return
    if path[-1].shadow and limit.unit:
        yield "shadow", "true"
    if path[-1].quota and limit.unit:
        yield "quota", "true"
    shared, wild = _shared(path)
    if shared and limit.requests:
        yield "shared", "true" if shared == wild else sequence(map(quoted, shared))
    if limit.name:
        yield "name", quoted(limit.name)
    replaces = [name for name, _ in limit.replaces if name in named]
    if replaces:
        yield "replaces", sequence(map(quoted, dict.fromkeys(replaces)))
    if path[-1].metadata and limit.unit:
        yield "metadata", data(path[-1].metadata)


def _count(limit: RateLimit) -> int:
    """Return the largest count supported for a period."""
    return min(limit.requests, MAX_COUNT, MAX_PER_SECOND * UNITS[limit.unit][0])


def _shared(path: Sequence[EnvoyDescriptorConfig]) -> tuple[list[str], list[str]]:
    """Return the keys whose values share one count, and those with a * in the match."""
    wild = [each.key for each in path if not each.value or "*" in each.value]
    apart = {each.key for each in path if each.key in wild and not each.shared}
    return [key for key in dict.fromkeys(wild) if key not in apart], list(dict.fromkeys(wild))


def _differences(path: Sequence[EnvoyDescriptorConfig], named: set[str]) -> Iterator[_Difference]:
    """Yield the differences of a descriptor."""
    each = path[-1]
    for name, place in each.other_keys:
        yield _Difference(place, _NO_EQUAL[name])
    if "*" in each.key:
        yield _Difference(
            each.place, "a * in a key is literal here, and does not stand for any text"
        )
    limit = each.limit
    if limit is None:
        return
    if limit.unit and _count(limit) < limit.requests:
        message = (
            f"{limit.requests} per {limit.unit} is more than can be counted here: {_count(limit)}"
        )
        yield _Difference(limit.place, message)
    for name, place in limit.replaces:
        if name not in named:
            yield _Difference(
                place, f"no limit of this domain is named {name!r}, so it replaces nothing"
            )
    shared, _ = _shared(path)
    mixed = [one.key for one in path if one.shared and one.key not in shared]
    for key in dict.fromkeys(mixed):
        message = (
            f"share_threshold of {key!r} is ignored: the key occurs twice here, once without it"
        )
        yield _Difference(each.place, message)


def _written(rule: _ImportedRule) -> str:
    """Return the lines of a rule."""
    text = "".join(comment(note.message, INDENT) for note in rule.notes)
    if not rule.match:
        return text
    pairs = [(key, quoted(value)) for key, value in rule.match]
    is_plain = len({key for key, _ in pairs}) == len(pairs)
    match = mapping(pairs) if is_plain else sequence(mapping([pair]) for pair in pairs)
    fields = [("match", match), *rule.fields]
    line = f"{' ' * INDENT}- {mapping(fields)}\n"
    if len(line) <= WIDTH:
        return text + line
    lines = [f"{key}: {value}\n" for key, value in fields]
    return text + f"{' ' * INDENT}- " + f"{' ' * (INDENT + 2)}".join(lines)


def _merge_differences(notes: Sequence[_Difference]) -> list[Problem]:
    """Return notes for people: each once, at its first position, with the lines of the others."""
    places: dict[str, list[FilePlace]] = {}
    for note in notes:
        places.setdefault(note.message, []).append(note.place)
    other_keys = [found[0].problem(message, _also(found)) for message, found in places.items()]
    return in_order(other_keys)


def _also(places: Sequence[FilePlace]) -> str:
    first, *others = places
    if not others:
        return ""
    names = [
        f"{one.document.file}:{one.line}" if one.document is not first.document else str(one.line)
        for one in others
    ]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"also in line {', '.join(names[:8])}{more}"
