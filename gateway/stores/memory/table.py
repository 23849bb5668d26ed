"""A dictionary in pieces that grows without long pauses and without unused room.

A large `dict` is copied as a whole when it grows, tens of milliseconds for a million keys, and
again and again while keys come and go, each time to up to three times the room it needs. So keys
are spread over shards of a few hundred by extendible hashing: the last bits of a key's hash select
the shard from a directory; a shard that is too large is split in two, distinguished by one more
bit.

256 dictionaries would be simpler, but their pauses grow with the number of keys. Measured with
`python -m bench.micro.tables` at a million keys: 140 bytes for each key and a longest pause of
0.4 ms, against 141 bytes and 3.7 ms. If they are not copied after keys were forgotten, 100,000 keys
take 178 bytes each instead of 141. A single dictionary pauses for 33 ms.
"""

from __future__ import annotations

from typing import Any, Final

Shard = dict[str, Any]

SHARD_KEYS: Final = 341
"""A `dict` of this many keys is exactly full (two thirds of 512); one more would double it."""


class Table:
    """A dictionary in shards.

    The hot path reads `table.shards[hash(key) & table.mask]` itself; a call would cost a tenth of a
    decision. Do not keep a shard across `insert`, `sweep` and `discard`, which may replace it.

    Attributes:
        shards: the directory; a shard is in it once or several times.
        mask: the bits of a hash that select from the directory.
        looked_at: how many keys the shards had that `next_shard` returned.
    """

    __slots__ = ("_depths", "_hand", "count", "looked_at", "mask", "shards")

    def __init__(self) -> None:
        self.shards: list[Shard] = [{}]
        self.mask = 0
        self.count = 0
        self.looked_at = 0
        self._depths = [0]
        self._hand = 0

    def __len__(self) -> int:
        return self.count

    def get(self, key: str) -> Any:
        """Return what is kept for a key, or None."""
        return self.shards[hash(key) & self.mask].get(key)

    def put(self, key: str, value: Any) -> bool:
        """Keep a value; return whether the key is new."""
        index = hash(key) & self.mask
        shard = self.shards[index]
        if key in shard:
            shard[key] = value
            return False
        if len(shard) >= SHARD_KEYS:
            self._split(index)
            shard = self.shards[hash(key) & self.mask]
        shard[key] = value
        self.count += 1
        return True

    def next_shard(self) -> Shard:
        """Return the next shard, in a cycle."""
        self._hand = (self._hand + 1) & self.mask
        while self._hand >> self._depths[self._hand]:
            # Another entry for a shard that has already been returned.
            self._hand = (self._hand + 1) & self.mask
        shard = self.shards[self._hand]
        self.looked_at += len(shard)
        return shard

    def forget(self, keys: list[str]) -> None:
        """Forget keys that are there, and free their room."""
        changed = set()
        for key in keys:
            index = hash(key) & self.mask
            del self.shards[index][key]
            changed.add(index & ((1 << self._depths[index]) - 1))
        self.count -= len(keys)
        for index in changed:
            # A copy has no holes. With them the next growth would triple the size.
            self._replace(index, self._depths[index], dict(self.shards[index]))

    def _split(self, index: int) -> None:
        depth = self._depths[index]
        if 1 << depth > self.mask:
            if self.mask > self.count // 16:
                # So many equal hashes are no accident: let the shard grow, not the directory.
                return
            self.shards *= 2
            self._depths *= 2
            self.mask = 2 * self.mask + 1
        halves: tuple[Shard, Shard] = ({}, {})
        for key, value in self.shards[index].items():
            halves[hash(key) >> depth & 1][key] = value
        first = index & ((1 << depth) - 1)
        self._replace(first, depth + 1, halves[0])
        self._replace(first | 1 << depth, depth + 1, halves[1])

    def _replace(self, first: int, depth: int, shard: Shard) -> None:
        """Put a shard wherever the last `depth` bits are those of `first`."""
        for index in range(first, self.mask + 1, 1 << depth):
            self.shards[index] = shard
            self._depths[index] = depth
