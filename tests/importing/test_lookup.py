"""What was imported is looked up as Envoy's own service looks it up, whatever it says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.config.checking.check import Source, check_text
from gateway.config.models.gateway import GatewayConfig
from gateway.importing.envoy_ratelimit import import_envoy_ratelimit
from gateway.systems.envoy.tree import Tree

VALUES: Final = ("", "x", "y", "x*", "*y", "x*y", "*", "**")
ASKED: Final = ("", "x", "y", "xy", "xzy", "z")

Entries = Sequence[tuple[str, str]]


def _distinct(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    unique: dict[tuple[str, str], dict[str, Any]] = {}
    for one in found:
        unique.setdefault((one["key"], one.get("value", "")), one)
    return list(unique.values())


def _levels(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    limit = st.one_of(
        st.builds(lambda count: {"unit": "day", "requests_per_unit": count}, st.integers(0, 999)),
        st.just({"unlimited": True}),
    )
    descriptor = st.fixed_dictionaries(
        {"key": st.sampled_from("ab"), "value": st.sampled_from(VALUES)},
        optional={"rate_limit": limit, "descriptors": children},
    )
    return st.lists(descriptor, min_size=1, max_size=5).map(_distinct)


trees = st.recursive(_levels(st.just([])), _levels, max_leaves=4)
entries = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(ASKED)), min_size=1, max_size=3
)


def asked_there(descriptors: Sequence[dict[str, Any]], found: Entries) -> int | None:
    """How many a descriptor may have by the service's own rules; None if it is not limited.

    A value that is written comes first, then patterns in their order, then the key alone; only
    what is as deep as the descriptor counts, and there is no way back.
    """
    limit = None
    for depth, (key, value) in enumerate(found, 1):
        same = [one for one in descriptors if one["key"] == key]
        ways = (
            *(one for one in same if one["value"] == value and value),
            *(one for one in same if "*" in one["value"] and _is_like(value, one["value"])),
            *(one for one in same if not one["value"]),
        )
        if not ways:
            return None
        limit = ways[0].get("rate_limit") if depth == len(found) else None
        descriptors = ways[0].get("descriptors", [])
    return None if limit is None else limit.get("requests_per_unit")


def _is_like(value: str, pattern: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value, re.DOTALL) is not None


def asked_here(config: GatewayConfig, found: Entries) -> int | None:
    """The same by the rules of a listener."""
    listener = config.listeners[0].envoy_rls
    assert listener is not None
    tree = Tree[int]()
    for rule in listener.domains["d"]:
        # A tree has values for all its rules, of which some are not limited.
        counts = [config.policies[name].limits[0].limit.count for name in rule.policies]
        tree.add(rule.match, 0 if rule.refuse else counts[0] if counts else -1)
    count = tree.find(found)
    return None if count == -1 else count


@given(trees, st.lists(entries, min_size=1, max_size=20))
def test_descriptors_have_the_limits_that_they_had(
    descriptors: list[dict[str, Any]], asked: list[Entries]
) -> None:
    """For any tree of descriptors, and any that is asked about."""
    source = json.dumps({"domain": "d", "descriptors": descriptors}).encode()
    text = import_envoy_ratelimit([Source("one.yaml", source)]).text
    config = check_text(text).config

    for found in asked:
        assert asked_here(config, found) == asked_there(descriptors, found)
