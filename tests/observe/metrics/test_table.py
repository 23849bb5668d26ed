"""The table of families: nothing is counted that is not in it, and the reference has its rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.observe.metrics import GatewayMetrics
from gateway.observe.metrics.families import ChildKind, Family
from gateway.observe.metrics.plain import FIELDS
from gateway.observe.metrics.table import TABLE

PAGE: Final = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()

OWN: Final = {"config_applied_us", "started_us", "version", "workers"}
"""What each process has for itself."""

CHILDREN: Final = {"log", "memory", "policies", "routes", "stores", "targets", "upstreams"}
"""Where other things that are counted are found."""

MADE_WITH: Final = {"frontends", "new_target", "refresh", "tallies"}
"""What else a child has."""


def head(kind: ChildKind[Any], family: Family[Any]) -> str:
    """The first two columns of a family's row in the reference."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    labels = (*kind.labels, *family.labels)
    if family.type == "info":
        labels = tuple(next(iter(family.samples(GatewayMetrics())))[1])  # type: ignore[arg-type]
    shown = f" `{{{', '.join(labels)}}}`" if labels else ""
    type_ = "gauge" if family.type == "info" else family.type
    return f"`{family.name}{suffix}`{shown} | {type_}"


def test_the_reference_has_a_row_for_each_family_with_its_labels_and_type() -> None:
    """And no other."""
    families = [head(each.kind, family) for each in TABLE for family in each.families]
    rows = re.findall(r"^\| (`sluice_\w+`.*? \| \w+) \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(families)


@pytest.mark.parametrize("name", FIELDS)
def test_whatever_is_counted_is_told_to_other_processes(name: str) -> None:
    """Each attribute of a child is a counter of the table, or each process has its own."""
    kind, fields = FIELDS[name]
    child = kind.child(GatewayMetrics(), *("x" for _ in kind.labels))
    attributes = set(getattr(child, "__slots__", None) or vars(child))
    told = {field.name for field in fields}
    assert attributes - told <= OWN | CHILDREN | MADE_WITH
    assert told <= attributes
