"""Counters of one of several processes, in memory that others read also after its death.

Each count is a word in the ledger of the process (`gateway.board.ledger`): to count is to write it,
so a process that is killed has lost nothing, and the next one at its place goes on from there. The
code that counts does not know: these are the classes of `counters`, whose numbers are fields of a
structure on that memory, or items of it.

Entries are made when something is first counted, because there may be ten thousand routes, but for
the numbers, which are made with their child. They are shown as long as their child is: requests in
flight may count on for something that is not configured any more.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import MutableSequence
from ctypes import Structure, c_uint64
from typing import Any, Final, TypeVar, cast

from gateway.base.clock import US, Clock, wall_us
from gateway.board.ledger import WORD_BYTES, Ledger, LedgerEntry
from gateway.observe.metrics.counters import (
    FrontendMetrics,
    GatewayMetrics,
    Histogram,
    LogMetrics,
    MemoryMetrics,
    PolicyMetrics,
    RouteMetrics,
    StoreMetrics,
    TallyKeys,
    TargetMetrics,
    UpstreamMetrics,
)
from gateway.observe.metrics.families import COUNTS, Labels
from gateway.observe.metrics.plain import FIELDS, NUMBERS, CountName, read_name

log = logging.getLogger(__name__)

FULL: Final = (
    "there is no memory for more counters (%s): what they count is not in /metrics until the "
    "gateway is restarted"
)

NOWHERE: Final = -1
"""Where an entry begins for which there was no room."""

T = TypeVar("T")


def _numbers(kind: str) -> list[tuple[str, type[c_uint64]]]:
    """Return the numbers of a kind as fields of a structure."""
    return [(field.name, c_uint64) for field in NUMBERS[kind]]


class _Book:
    """The ledger of a process, by what is counted.

    Args:
        ledger: of the process.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._all: set[_Entries] = set()
        self._found: defaultdict[tuple[str, Labels], list[bytes]] = defaultdict(list)
        self._has_logged = False
        for name in ledger.names:
            of = read_name(name)
            self._found[of.kind, of.labels].append(name)

    def entries(self, kind: str, labels: Labels, *, is_shown: bool) -> _Entries:
        """Return the entries of a child that is new in this process; arguments as in `_Entries`."""
        entries = _Entries(self, kind, labels, is_shown=is_shown)
        self._all.add(entries)
        return entries

    def found(self, kind: str, labels: Labels) -> list[CountName]:
        """Return what the processes before have counted of a child."""
        return [read_name(name) for name in self._found.get((kind, labels), ())]

    def open(self, name: bytes, count: int, *, is_shown: bool) -> LedgerEntry:
        """Return an entry; see `Ledger.open`."""
        try:
            return self.ledger.open(name, count, is_shown=is_shown)
        except OSError as error:
            if not self._has_logged:
                self._has_logged = True
                log.warning(FULL, error.strerror)
            return LedgerEntry(NOWHERE, memoryview(bytearray(count * WORD_BYTES)).cast("Q"))

    def settle(self, shown: set[_Entries]) -> None:
        """Show these, and no others."""
        for entries in self._all - shown:
            entries.hide()
        for entries in shown:
            entries.show()
        self._all = shown
        kept = {(entries.kind, entries.labels) for entries in shown}
        for key in self._found.keys() - kept:
            for name in self._found.pop(key):
                self.ledger.forget(name)


class _Entries:
    """The entries of one child.

    Args:
        book: of the process.
        kind: of the child.
        labels: of the child.
        is_shown: whether its entries are shown.
    """

    __slots__ = ("_book", "_is_shown", "_opened", "kind", "labels")

    def __init__(self, book: _Book, kind: str, labels: Labels, *, is_shown: bool) -> None:
        self.kind = kind
        self.labels = labels
        self._book = book
        self._is_shown = is_shown
        self._opened: dict[bytes, LedgerEntry] = {}

    def found(self, field: str) -> list[Any]:
        """Return the keys of counts that the processes before have made."""
        found = self._book.found(self.kind, self.labels)
        return [one.keys[0] for one in found if one.field == field and len(one.keys) == 1]

    def open(self, field: str, keys: tuple[Any, ...], count: int) -> memoryview:
        """Return counts; those of the processes before go on.

        Args:
            field: as in `CountName`.
            keys: likewise.
            count: how many.
        """
        name = CountName(self.kind, self.labels, field, keys).to_bytes()
        entry = self._opened.get(name)
        if entry is None:
            entry = self._book.open(name, count, is_shown=self._is_shown)
            self._opened[name] = entry
        return cast("memoryview", entry.counts)

    def show(self) -> None:
        """Show its entries."""
        if not self._is_shown:
            self._is_shown = True
            for name, entry in self._opened.items():
                if entry.begin != NOWHERE:
                    self._book.ledger.show(entry, name)

    def hide(self) -> None:
        """Show its entries no more; those that are still to come neither."""
        self._is_shown = False
        for name, entry in self._opened.items():
            if entry.begin != NOWHERE:
                self._book.ledger.hide(entry, name)


class _SharedHistogram(Histogram):
    """A histogram whose cells are written to a ledger as well, once something was counted."""

    __slots__ = ("_entries", "_field", "_words")

    def __init__(self, entries: _Entries, field: str, like: Histogram) -> None:
        super().__init__(like.bounds_us)
        self._entries = entries
        self._field = field
        self._words: memoryview | None = None

    def observe(self, duration_us: int) -> None:
        """Count one duration, in microseconds."""
        words = self._words
        if words is None:
            words = self._open()
        cells = self.cells
        place = bisect_left(self._edges_us, duration_us)
        # To write a word takes half as long as to read it, too.
        words[place] = cells[place] = cells[place] + 1
        words[0] = cells[0] = cells[0] + duration_us

    def _open(self) -> memoryview:
        words = self._words = self._entries.open(self._field, (), len(self.cells))
        self.cells = list(words)
        return words


class _SharedCounts(defaultdict[Any, int]):
    """Counts by key that are written to a ledger as well."""

    def __init__(self, entries: _Entries, field: str) -> None:
        super().__init__(int)
        self._entries = entries
        self._field = field
        self._cells: dict[Any, memoryview] = {}
        for key in entries.found(field):
            super().__setitem__(key, self._cell(key)[0])

    def __setitem__(self, key: Any, count: int) -> None:
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cell(key)
        cell[0] = count
        super().__setitem__(key, count)

    def _cell(self, key: Any) -> memoryview:
        cell = self._cells[key] = self._entries.open(self._field, (key,), 1)
        return cell


class _RouteWords(RouteMetrics):
    # Its statuses are in the ledger only: nothing reads them here, and each request counts one.
    __slots__ = ("_words", "entries")

    def __init__(self, entries: _Entries) -> None:
        super().__init__()
        self.entries = entries
        self.duration = _SharedHistogram(entries, "duration", self.duration)
        self._words: dict[int, memoryview] = {}

    def answered(self, status: int, duration_us: int) -> None:
        """Count one answered request."""
        word = self._words.get(status)
        if word is None:
            word = self._words[status] = self.entries.open("statuses", (status,), 1)
        word[0] += 1
        self.duration.observe(duration_us)


class _PolicyWords(Structure, PolicyMetrics):
    _fields_ = _numbers("policy")
    entries: _Entries


class _UpstreamWords(Structure, UpstreamMetrics):
    _fields_ = _numbers("upstream")
    entries: _Entries


class _TargetWords(Structure, TargetMetrics):
    _fields_ = _numbers("target")
    entries: _Entries


class _StoreWords(Structure, StoreMetrics):
    _fields_ = _numbers("store")
    entries: _Entries


class _MemoryWords(Structure, MemoryMetrics):
    _fields_ = _numbers("memory")
    entries: _Entries


class _LogWords(Structure, LogMetrics):
    _fields_ = _numbers("log")
    entries: _Entries


class _FrontendWords(Structure, FrontendMetrics):
    _fields_ = _numbers("listener")
    entries: _Entries

    def tally(self, keys: TallyKeys) -> MutableSequence[int]:
        """Return counts that others find under their keys themselves."""
        return cast("MutableSequence[int]", self.entries.open("answers", keys, len(keys)))


_SHARED: Final[dict[type[Any], tuple[str, type[Any]]]] = {
    PolicyMetrics: ("policy", _PolicyWords),
    UpstreamMetrics: ("upstream", _UpstreamWords),
    TargetMetrics: ("target", _TargetWords),
    StoreMetrics: ("store", _StoreWords),
    MemoryMetrics: ("memory", _MemoryWords),
    LogMetrics: ("log", _LogWords),
    FrontendMetrics: ("listener", _FrontendWords),
}
"""For each class of counters with numbers, the name of its kind and the class that shares them."""


def _shared(plain: Any, kind: str, shared: type[Any], entries: _Entries) -> Any:
    """Return counters whose counts are in a ledger.

    Args:
        plain: the same, not shared.
        kind: theirs.
        shared: their class.
        entries: theirs.
    """
    numbers = [field.name for field in NUMBERS[kind]]
    made = shared.from_buffer(entries.open("", (), len(numbers)))
    made.entries = entries
    counts = [field.name for field in FIELDS[kind][1] if field.join is COUNTS]
    for name, value in vars(plain).items():
        if name in counts:
            setattr(made, name, _SharedCounts(entries, name))
        elif isinstance(value, Histogram):
            setattr(made, name, _SharedHistogram(entries, name, value))
        elif name not in numbers:
            setattr(made, name, value)
    return made


class SharedMetrics(Structure, GatewayMetrics):
    """All counters of one of several processes; make them with `metrics_in`."""

    _fields_ = _numbers("gateway")
    entries: _Entries
    book: _Book

    def new(self, make: type[T], *labels: str) -> T:
        """Return new counters; those of a target are shown when they are found at `settle`."""
        if make is RouteMetrics:
            return cast("T", _RouteWords(self.book.entries("route", labels, is_shown=True)))
        kind, shared = _SHARED[make]
        entries = self.book.entries(kind, labels, is_shown=make is not TargetMetrics)
        return cast("T", _shared(make(), kind, shared, entries))

    def settle(self) -> None:
        """Show what is found here now, and nothing else."""
        kinds = (kind for kind, _ in FIELDS.values())
        children = (child for kind in kinds for _, child in kind.children(self))
        # A store of another distribution may count by itself what it keeps in this process.
        self.book.settle({child.entries for child in children if hasattr(child, "entries")})

    def used_cpu(self, seconds: float) -> None:
        """Record the CPU time that this process has used so far."""
        self.book.ledger.used_cpu(round(seconds * US))


def metrics_in(ledger: Ledger, version: str, clock: Clock = wall_us) -> SharedMetrics:
    """Return the counters of a process.

    Args:
        ledger: where they are.
        version: as in `GatewayMetrics`.
        clock: likewise.
    """
    book = _Book(ledger)
    entries = book.entries("gateway", (), is_shown=True)
    plain = GatewayMetrics(version, clock)
    metrics = cast("SharedMetrics", _shared(plain, "gateway", SharedMetrics, entries))
    metrics.book = book
    metrics.log = metrics.new(LogMetrics)
    return metrics
