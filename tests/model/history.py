"""What limiter processes note of what was decided, and how that is read again.

A line of JSON for each thing, written without a buffer as soon as it is known: a process that is
killed has noted all that it let through. Moments are microseconds of the machine's monotonic clock,
which all processes share and no fault sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

PASSED: Final = "passed"
REFUSED: Final = "refused"
RETURNED: Final = "returned"
"""It was allowed, and given back without having been made."""
CANCELLED: Final = "cancelled"
"""Its caller left before there was an answer; what was taken is given back."""


class Span(NamedTuple):
    """A moment that is known to lie between two others, both included."""

    first: int
    last: int


class Asked(NamedTuple):
    """One ask and what became of it.

    Attributes:
        number: of the ask within its process.
        sent, received: between which the decision was made; for a cancelled one, when it was
            given up.
        keys: for each limit its scope and the identity.
        cost: what it costs.
        kind: `PASSED`, `REFUSED`, `RETURNED` or `CANCELLED`.
        alone: whether the process decided without its store.
        waits_us: for each limit how long until the turn, as the decision said.
        slowest: which of the limits made it wait.
        ended: when the request went on to be made, was refused or was given back.
        late_us: for how long this process was kept from running meanwhile.
        wall: what the process's own wall clock may have shown at the decision.
    """

    number: int
    sent: int
    received: int
    keys: tuple[tuple[str, str], ...]
    cost: int
    kind: str
    alone: bool
    waits_us: tuple[int, ...]
    slowest: int
    ended: int
    late_us: int
    wall: Span


class Kept(NamedTuple):
    """A lease was renewed (`held`), found to be lost, or (`is_release`) is being released.

    Attributes:
        number: of the ask that the lease belongs to.
        sent, received: between which.
        held: whether the store said so.
        is_release: whether it is the end.
    """

    number: int
    sent: int
    received: int
    held: bool
    is_release: bool


class Notes(NamedTuple):
    """All that one process has noted.

    Attributes:
        name: of the process.
        asked: in the order of their ends.
        kept: likewise.
    """

    name: str
    asked: list[Asked]
    kept: list[Kept]


def line(note: Asked | Kept) -> bytes:
    """What is written of it."""
    return json.dumps([type(note).__name__, *note]).encode() + b"\n"


def read(path: Path) -> Notes:
    """What a process has noted; a line that was not wholly written is none."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return parse(path.name, lines)


def parse(name: str, lines: Iterable[bytes]) -> Notes:
    """Notes from their lines."""
    notes = Notes(name, [], [])
    for text in lines:
        kind, *fields = json.loads(text)
        if kind == "Kept":
            notes.kept.append(Kept(*fields))
            continue
        asked = Asked(*fields)
        notes.asked.append(
            asked._replace(
                keys=tuple((scope, key) for scope, key in asked.keys),
                waits_us=tuple(asked.waits_us),
                wall=Span(*asked.wall),
            )
        )
    return notes
