"""Counters as plain data, exchanged between the processes of a gateway, and their sum.

A piece is one child with all its counters, such as a route; the pieces of a whole gateway are made
one by one, since there may be thousands. What a piece holds follows from the table of families.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway.observe.metrics.counters import GatewayMetrics
from gateway.observe.metrics.families import ChildKind, Field
from gateway.observe.metrics.table import TABLE

Piece = list[Any]
"""ChildKind, labels and counters: numbers, text, and lists of these."""


def _fields() -> dict[str, tuple[ChildKind[Any], tuple[Field, ...]]]:
    """For each kind, in order of the table, the counters of its children."""
    kinds: dict[str, ChildKind[Any]] = {}
    fields: dict[str, dict[Field, None]] = {}
    for section in TABLE:
        kinds[section.kind.name] = section.kind
        of_kind = fields.setdefault(section.kind.name, {})
        for field in (*(one for each in section.families for one in each.fields), *section.unshown):
            of_kind[field] = None
    return {name: (kind, tuple(fields[name])) for name, kind in kinds.items()}


FIELDS: Final = _fields()
"""By the names of kinds."""


def pieces(metrics: GatewayMetrics) -> Iterator[Piece]:
    """Yield all counters of a gateway in a form that fits JSON."""
    for name, (kind, fields) in FIELDS.items():
        for labels, child in kind.children(metrics):
            if kind.refresh is not None:
                kind.refresh(child)
            if kind.is_shared is None or kind.is_shared(child):
                yield [name, *labels, *(one.join.plain(getattr(child, one.name)) for one in fields)]


def add(total: GatewayMetrics, piece: Piece, *, gauges: bool = True) -> None:
    """Add one piece to a sum.

    Args:
        total: the sum, changed in place.
        piece: the counters of one process.
        gauges: whether its current values count too; not for a process that has ended.
    """
    name, *rest = piece
    kind, fields = FIELDS[name]
    child = kind.child(total, *rest[: len(kind.labels)])
    for field, received in zip(fields, rest[len(kind.labels) :], strict=True):
        if gauges or field.join.is_lasting:
            setattr(child, field.name, field.join.add(getattr(child, field.name), received))
