"""The configuration of Envoy's own rate limit service, read and checked.

The form is that of github.com/envoyproxy/ratelimit, as its README and its loader have it in 2026: a
domain, and descriptors inside each other, each with a key, perhaps a value, and perhaps a limit.
Files that its loader refuses are refused here as well, and so is a limit without a number, which
the loader would read as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gateway.base.errors import Problem
from gateway.config.checking.check import Source
from gateway.config.checking.messages import did_you_mean
from gateway.config.reading.nodes import FilePlace, MappingNode, Node
from gateway.importing.reading import Reading, is_nothing, member
from gateway.importing.yaml11 import plain_of

UNITS: Final = {
    "second": (1, "s"),
    "minute": (60, "m"),
    "hour": (3_600, "h"),
    "day": (86_400, "d"),
    "week": (7 * 86_400, "7d"),
    "month": (30 * 86_400, "30d"),
    "year": (365 * 86_400, "365d"),
}
"""Seconds of each unit, and the notation of the unit here. The service counts in periods of this
many seconds, regardless of the calendar: its month has 30 days.
"""

MOST: Final = (1 << 32) - 1

_ROOT: Final = ("domain", "descriptors")
_FILE_NAME: Final = "name"
_DESCRIPTOR: Final = (
    *("key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold"),
    *("quota_mode", "detailed_metric", "value_to_metric", "metadata"),
)
_LIMIT: Final = ("unit", "requests_per_unit", "unlimited", "name", "replaces")
_REPLACES: Final = ("name",)
_ALL: Final = (*_ROOT, *_DESCRIPTOR, *_LIMIT)

UNTRANSLATED: Final = ("detailed_metric", "value_to_metric")
"""Keys of a descriptor that have no meaning here."""


class RateLimit(NamedTuple):
    """A limit of a descriptor.

    Attributes:
        requests: the count.
        unit: one of `UNITS`; empty if it is unlimited.
        name: the name by which other limits can replace it.
        replaces: names of the limits that do not count where this one does.
        place: where it is written.
    """

    requests: int
    unit: str
    name: str
    replaces: tuple[tuple[str, FilePlace], ...]
    place: FilePlace


@dataclass(frozen=True, slots=True)
class EnvoyDescriptorConfig:
    """One descriptor and its children.

    Attributes:
        key: its key.
        value: its value, in which each `*` stands for any text; empty for any value.
        limit: the limit of this descriptor, if it has one.
        children: the descriptors below.
        shadow: whether its limit never refuses.
        quota: whether it refuses only together with all other quotas of a request.
        shared: whether all values like `value` have one count.
        metadata: data for other filters.
        other_keys: its other keys, each with its position.
        place: where its key is written.
    """

    key: str
    value: str
    limit: RateLimit | None
    children: tuple[EnvoyDescriptorConfig, ...]
    shadow: bool
    quota: bool
    shared: bool
    metadata: Mapping[str, Any]
    other_keys: tuple[tuple[str, FilePlace], ...]
    place: FilePlace


class EnvoyDomainConfig(NamedTuple):
    """A domain, from one file or several."""

    name: str
    descriptors: tuple[EnvoyDescriptorConfig, ...]


def read_domains(sources: Sequence[Source], notes: list[Problem]) -> list[EnvoyDomainConfig]:
    """Read files; those of one domain are merged, and one without descriptors limits nothing.

    Args:
        sources: the files.
        notes: receives remarks on ignored parts.

    Raises:
        ConfigError: with all mistakes in them.
    """
    reading = Reading()
    found: dict[str, list[EnvoyDescriptorConfig]] = {}
    for source in sources:
        root = reading.root(source)
        if root is None:
            continue
        if member(root, "apiVersion") is not None:
            hint = "pass the text under data as a file of its own"
            reading.wrong(root.place, "this is a Kubernetes object that contains the file", hint)
            continue
        reading.only(root, (*_ROOT, _FILE_NAME), _ALL)
        if _FILE_NAME in root.members:
            # The service knows this word from limits, and ignores it elsewhere.
            message = "the service ignores a name here, and so does Sluice"
            notes.append(root.members[_FILE_NAME].key.problem(message))
        message, hint = "the file has no domain", "for example domain: shop"
        name = reading.needed(member(root, "domain"), root.place, message, hint)
        found.setdefault(name, []).extend(_descriptors(reading, member(root, "descriptors")))
    for descriptors in found.values():
        _check_unlike(reading, descriptors)
    if not reading.problems and not any(found.values()):
        files = ", ".join(dict.fromkeys(source.file for source in sources))
        reading.problems.append(
            Problem(files, 0, 0, "", "there are no descriptors: there is nothing to convert")
        )
    reading.end()
    return [
        EnvoyDomainConfig(name, tuple(descriptors))
        for name, descriptors in found.items()
        if descriptors
    ]


def _descriptors(reading: Reading, node: Node | None) -> list[EnvoyDescriptorConfig]:
    return [_descriptor(reading, item) for item in reading.items(node, "a descriptor")]


def _descriptor(reading: Reading, node: MappingNode) -> EnvoyDescriptorConfig:
    reading.only(node, _DESCRIPTOR, _ALL)
    key_node, value_node = member(node, "key"), member(node, "value")
    place = key_node.place if key_node is not None else node.place
    hint = "for example key: remote_address"
    key = reading.needed(key_node, place, "a descriptor needs a key", hint)
    value = reading.text(value_node)
    shared = reading.switch(member(node, "share_threshold"))
    if shared and "*" not in value:
        message = "share_threshold requires a value with a *"
        hint = "add a *, for example value: files/*; or remove it"
        reading.wrong(node.members["share_threshold"].key, message, hint)
    other_keys = [
        (name, node.members[name].key)
        for name in UNTRANSLATED
        if name in node.members and reading.switch(node.members[name].node)
    ]
    return EnvoyDescriptorConfig(
        key,
        value,
        _limit(reading, member(node, "rate_limit")),
        tuple(_descriptors(reading, member(node, "descriptors"))),
        reading.switch(member(node, "shadow_mode")),
        reading.switch(member(node, "quota_mode")),
        shared,
        _metadata(reading, member(node, "metadata")),
        tuple(other_keys),
        place,
    )


def _metadata(reading: Reading, node: Node | None) -> Mapping[str, Any]:
    if node is None or is_nothing(node):
        return {}
    found = reading.mapping(node, "a mapping")
    return plain_of(found) if found is not None else {}


def _limit(reading: Reading, node: Node | None) -> RateLimit | None:
    found = reading.mapping(node, "a limit") if node is not None and not is_nothing(node) else None
    if found is None:
        return None
    reading.only(found, _LIMIT, _ALL)
    unit = _unit(reading, found)
    requests = 0
    if unit:
        number = member(found, "requests_per_unit")
        if number is None or is_nothing(number):
            hint = "requests_per_unit: 0 refuses everything"
            reading.wrong(found.place, "this limit has no requests_per_unit", hint)
        else:
            requests = reading.whole_number(number, MOST)
    name = reading.text(member(found, "name"))
    replaces = tuple(_replaced(reading, member(found, "replaces"), name))
    return RateLimit(requests, unit, name, replaces, found.place)


def _unit(reading: Reading, node: MappingNode) -> str:
    """The unit in lower case; empty if there is no limit, or a problem."""
    unit_node = member(node, "unit")
    known = ", ".join(UNITS)
    if reading.switch(member(node, "unlimited")):
        if reading.text(unit_node).lower() in UNITS and unit_node is not None:
            reading.wrong(
                unit_node.place, "an unlimited limit has no unit", "remove one of the two"
            )
        return ""
    hint = f"use one of {known}; or unlimited: true"
    text = reading.needed(unit_node, node.place, "this limit has no unit", hint)
    unit = text.lower()
    if unit in UNITS:
        return unit
    if unit_node is not None and text:
        hint = did_you_mean(text, tuple(UNITS), f"use one of {known}")
        reading.wrong(unit_node.place, f"{text!r} is not a unit", hint)
    return ""


def _replaced(reading: Reading, node: Node | None, own: str) -> Iterable[tuple[str, FilePlace]]:
    for item in reading.items(node, "the name of a limit"):
        reading.only(item, _REPLACES, _ALL)
        message, hint = "replaces needs a name", "write - name: and the name of another limit"
        name = reading.needed(member(item, "name"), item.place, message, hint)
        if name and name == own:
            reading.wrong(
                item.place, "a limit cannot replace itself", "use the name of another limit"
            )
        elif name:
            yield name, item.place


def _check_unlike(reading: Reading, descriptors: Sequence[EnvoyDescriptorConfig]) -> None:
    first: dict[tuple[str, str], FilePlace] = {}
    for each in descriptors:
        known = first.setdefault((each.key, each.value), each.place)
        if known is not each.place and each.key:
            value = f" with value {each.value!r}" if each.value else " without a value"
            message = f"{each.key!r}{value} is given twice"
            hint = f"the first is in line {known.line} of {known.document.file}"
            reading.wrong(each.place, message, hint)
        _check_unlike(reading, each.children)
