"""Throttr's records in memory, bounded in number and bytes, removed when they expire.

Records are in many small dictionaries, each with a heap of expiry times, so that neither growth
nor cleaning takes long at a time. If there is no room after expired records are removed, new
records are refused: a live record is never evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

Record = tuple[int, int, int, int, bytes | None]
"""Quota; when it expires (ns of the caller's clock); the code of its unit of time; when it may be
removed, which is then or later; and the value of a buffer, None for a counter. A plain tuple of
such values costs the garbage collector nothing."""

QUOTA: Final = 0
ENDS: Final = 1
UNIT: Final = 2
GONE: Final = 3
VALUE: Final = 4

SHARDS: Final = 256
SHARD_MASK: Final = SHARDS - 1
SLACK: Final = 64
"""How many obsolete entries a heap may always have before it is rebuilt."""
RECORD_BYTES: Final = 480
"""The most bytes of a record besides its key and value: its tuple and numbers, and its entries in a
dictionary, a heap and the set of lingering records."""
LOOKS_FOR_ROOM: Final = 256
"""How many entries are checked to make room for one record: some hundred microseconds."""
NEVER: Final = 1 << 200
"""Later than any real expiry time."""


class _RecordShard:
    """Some of the records.

    Args:
        records: the dictionary.
        waste: how many obsolete entries the heap may have per record. It differs from shard to
            shard, or all heaps would be rebuilt at nearly the same time.

    Attributes:
        records: by key.
        heap: when each expires, or earlier, with some obsolete entries. Lingering records are not
            in it.
        lingering: keys of records that have expired and are not removed yet, the oldest first.
    """

    __slots__ = ("_waste", "heap", "lingering", "records")

    def __init__(self, records: dict[bytes, Record], waste: float) -> None:
        self.records = records
        self._waste = waste
        self.heap: list[tuple[int, bytes]] = []
        self.lingering: OrderedDict[bytes, None] = OrderedDict()

    def schedule(self, key: bytes, ends_ns: int) -> None:
        """Note when a record expires."""
        self.lingering.pop(key, None)
        heap = self.heap
        heappush(heap, (ends_ns, key))
        if len(heap) > (1 + self._waste) * len(self.records) + SLACK:
            heap[:] = [
                (record[ENDS], key)
                for key, record in self.records.items()
                if key not in self.lingering
            ]
            heapify(heap)

    def due(self, now_ns: int, looks: int) -> tuple[bytes | None, int]:
        """Find a record that has expired and does not linger.

        Returns:
            Its key or None, and how many of `looks` are left.
        """
        heap = self.heap
        while looks and heap and heap[0][0] <= now_ns:
            looks -= 1
            _, key = heappop(heap)
            record = self.records.get(key)
            if record is None or key in self.lingering:
                continue
            if record[ENDS] <= now_ns:
                return key, looks
            heappush(heap, (record[ENDS], key))
        return None, looks


class Records:
    """Records by key.

    The hot path reads `dicts[hash(key) & SHARD_MASK]` itself, and may put another record there
    in place of one of the same size that expires no later; the methods do everything else.

    Args:
        max_records: see below.
        max_bytes: see below.

    Attributes:
        max_records: the most records.
        max_bytes: the most bytes, by an estimate that is rather too high.
        dicts: the dictionaries.
        count: how many records there are, including expired ones.
        used_bytes: the estimate of their size.
    """

    __slots__ = (
        "_hand",
        "_shards",
        "_soonest_ns",
        "count",
        "dicts",
        "max_bytes",
        "max_records",
        "used_bytes",
    )

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.dicts: list[dict[bytes, Record]] = [{} for _ in range(SHARDS)]
        self.count = 0
        self.used_bytes = 0
        self.max_records = max_records
        self.max_bytes = max_bytes
        self._shards = [
            _RecordShard(records, 0.5 + place / SHARDS) for place, records in enumerate(self.dicts)
        ]
        self._soonest_ns = NEVER
        self._hand = 0

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<Records {self.count} in {self.used_bytes} bytes>"

    def get(self, key: bytes) -> Record | None:
        """Return the record of a key, which may have expired."""
        return self.dicts[hash(key) & SHARD_MASK].get(key)

    def put(self, key: bytes, record: Record, now_ns: int) -> bool:
        """Add a record for a key that has none, or an expired one.

        Returns:
            Whether there was room.
        """
        shard = self._shards[hash(key) & SHARD_MASK]
        if key in shard.records:
            self.remove(key)
        size = _size(key, record)
        if not self._has_room(size) and not self._make_room(size, now_ns):
            return False
        shard.records[key] = record
        self.count += 1
        self.used_bytes += size
        self._schedule(shard, key, record)
        return True

    def change(self, key: bytes, record: Record) -> None:
        """Replace a record by one of the same size."""
        shard = self._shards[hash(key) & SHARD_MASK]
        is_sooner = record[ENDS] < shard.records[key][ENDS]
        shard.records[key] = record
        # One that expires later is found at its old time, and rescheduled then.
        if is_sooner or key in shard.lingering:
            self._schedule(shard, key, record)

    def remove(self, key: bytes) -> None:
        """Remove the record of a key, which exists."""
        shard = self._shards[hash(key) & SHARD_MASK]
        record = shard.records.pop(key)
        shard.lingering.pop(key, None)
        self.count -= 1
        self.used_bytes -= _size(key, record)

    def sweep(self, now_ns: int, looks: int) -> bool:
        """Remove records that may be removed.

        Args:
            now_ns: the current time.
            looks: the most entries to check.

        Returns:
            Whether there may be more to do.
        """
        for _ in range(SHARDS):
            shard = self._shards[self._hand]
            while True:
                key, looks = shard.due(now_ns, looks)
                if key is None:
                    break
                if shard.records[key][GONE] > now_ns:
                    shard.lingering[key] = None
                else:
                    self.remove(key)
            while looks and shard.lingering:
                key = next(iter(shard.lingering))
                if shard.records[key][GONE] > now_ns:
                    break
                looks -= 1
                self.remove(key)
            if not looks:
                return True
            self._hand = (self._hand + 1) & SHARD_MASK
        return False

    def _schedule(self, shard: _RecordShard, key: bytes, record: Record) -> None:
        shard.schedule(key, record[ENDS])
        if record[ENDS] < self._soonest_ns:
            self._soonest_ns = record[ENDS]

    def _has_room(self, size: int) -> bool:
        return self.count < self.max_records and self.used_bytes + size <= self.max_bytes

    def _make_room(self, size: int, now_ns: int) -> bool:
        """Remove expired records until there is room; return whether there is."""
        if size > self.max_bytes or now_ns < self._soonest_ns:
            return False
        looks = LOOKS_FOR_ROOM
        for shard in self._shards:
            while looks:
                key = next(iter(shard.lingering), None)
                if key is None:
                    key, looks = shard.due(now_ns, looks)
                if key is None:
                    break
                self.remove(key)
                if self._has_room(size):
                    return True
        if looks:
            # Everything was checked, and nothing has expired.
            heaps = [shard.heap for shard in self._shards if shard.heap]
            self._soonest_ns = min((heap[0][0] for heap in heaps), default=NEVER)
        return False


def _size(key: bytes, record: Record) -> int:
    value = record[VALUE]
    return RECORD_BYTES + len(key) + (0 if value is None else len(value))
