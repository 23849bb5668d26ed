"""What one process of a gateway knows of the counters of another, and the sum of all.

Counts are in the ledgers of all processes (`shared`), where they can be read. Values that end with
their process, and those that change with time, are exchanged as plain data: a piece is one child
with all such values; the pieces of a whole gateway are made one by one, since there may be
thousands. What either holds follows from the table of families.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gateway.observe.metrics.counters import GatewayMetrics
from gateway.observe.metrics.families import COUNTS, TIMES, ChildKind, Field
from gateway.observe.metrics.table import TABLE

Piece = list[Any]
"""ChildKind, labels and values: numbers, text, and lists of these."""


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

GAUGES: Final = {
    name: gauges
    for name, (_, fields) in FIELDS.items()
    if (gauges := [field for field in fields if not field.join.is_lasting])
}
"""Those of each kind that end with their process."""

NUMBERS: Final = {
    name: [one for one in fields if one.join.is_lasting and one.join not in {COUNTS, TIMES}]
    for name, (_, fields) in FIELDS.items()
}
"""Those of each kind that are a number which lasts."""


def pieces(metrics: GatewayMetrics) -> Iterator[Piece]:
    """Yield all values of a gateway that end with it, in a form that fits JSON."""
    for name, gauges in GAUGES.items():
        kind, _ = FIELDS[name]
        for labels, child in kind.children(metrics):
            if kind.refresh is not None:
                kind.refresh(child)
            yield [name, *labels, *(one.join.plain(getattr(child, one.name)) for one in gauges)]


def add(total: GatewayMetrics, piece: Piece) -> None:
    """Add one piece of a process to a sum, which is changed in place."""
    name, *rest = piece
    kind, _ = FIELDS[name]
    child = kind.child(total, *rest[: len(kind.labels)])
    for field, received in zip(GAUGES[name], rest[len(kind.labels) :], strict=True):
        _add(child, field, received)


def _add(child: Any, field: Field, received: Any) -> None:
    setattr(child, field.name, field.join.add(getattr(child, field.name), received))


class CountName(NamedTuple):
    """The name of an entry in the ledger of a process.

    Attributes:
        kind: of the child.
        labels: of the child.
        field: which counts they are; empty for all its `NUMBERS`.
        keys: the keys of `COUNTS`, one for each count; None for one that is not shown.
    """

    kind: str
    labels: tuple[str, ...]
    field: str = ""
    keys: tuple[Any, ...] = ()

    def to_bytes(self) -> bytes:
        """Return it as JSON, so that any text can be in it."""
        return json.dumps(self, separators=(",", ":")).encode()


def read_name(data: bytes) -> CountName:
    """Return the parts of a name."""
    kind, labels, field, keys = json.loads(data)
    keys = (tuple(key) if isinstance(key, list) else key for key in keys)
    return CountName(kind, tuple(labels), field, tuple(keys))


def add_counts(total: GatewayMetrics, name: bytes, counts: Sequence[int]) -> None:
    """Add an entry of the ledger of a process to a sum, which is changed in place."""
    of = read_name(name)
    kind, _ = FIELDS[of.kind]
    child = kind.child(total, *of.labels)
    if not of.field:
        for field, count in zip(NUMBERS[of.kind], counts, strict=True):
            _add(child, field, count)
    elif of.keys:
        pairs = zip(of.keys, counts, strict=True)
        # One that is 0 is about to be counted for the first time, or never was.
        shown = [(key, count) for key, count in pairs if key is not None and count]
        COUNTS.add(getattr(child, of.field), shown)
    else:
        TIMES.add(getattr(child, of.field), counts)
