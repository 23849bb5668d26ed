"""What the memory store's table of keys costs, beside simpler ones.

Run as `python -m bench.micro.tables`. Each is filled with so many keys, one at a time. Then it is
used as a full store uses it: the keys of one piece are looked at, each fourth of them is forgotten,
and as many new ones come, until as many have come as there were, or a hundred thousand. Bytes are
those by which the process grows for each key, keys and values included. The pause is the longest
that one key or one such look took, in seconds of the processor, so that other programs count for
nothing. Each figure has a process of its own, and garbage is not collected.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, Protocol

from bench.micro.memory import address, resident_bytes
from gateway.stores.memory.table import Table

KEYS: Final = (10_000, 100_000, 1_000_000)
PIECES: Final = 256
FORGOTTEN_OF: Final = 4
CHANGES: Final = 100_000


class Keys(Protocol):
    """What of a table is measured."""

    def put(self, key: str, value: Any) -> bool:
        """Keep a value."""

    def next_shard(self) -> dict[str, Any]:
        """One piece after the other."""

    def forget(self, keys: list[str]) -> None:
        """Forget keys that are there."""


class Fixed:
    """As many dictionaries from the beginning to the end."""

    def __init__(self, pieces: int) -> None:
        self._pieces: list[dict[str, Any]] = [{} for _ in range(pieces)]
        self._mask = pieces - 1
        self._hand = 0

    def next_shard(self) -> dict[str, Any]:
        """One piece after the other."""
        self._hand = (self._hand + 1) & self._mask
        return self._pieces[self._hand]

    def put(self, key: str, value: Any) -> bool:
        """Keep a value; whether the key is a new one."""
        piece = self._pieces[hash(key) & self._mask]
        is_new = key not in piece
        piece[key] = value
        return is_new

    def forget(self, keys: list[str]) -> None:
        """Forget keys that are there; as `Table`, with the room that they had."""
        changed = set()
        for key in keys:
            place = hash(key) & self._mask
            del self._pieces[place][key]
            changed.add(place)
        for place in changed:
            self._pieces[place] = dict(self._pieces[place])


class FixedKeepingRoom(Fixed):
    """The same, but that what was forgotten leaves holes."""

    def forget(self, keys: list[str]) -> None:
        """Forget keys that are there."""
        for key in keys:
            del self._pieces[hash(key) & self._mask][key]


CONTESTANTS: Final[dict[str, Callable[[], Keys]]] = {
    "extendible hashing": Table,
    "256 dictionaries, copied": lambda: Fixed(PIECES),
    "256 dictionaries": lambda: FixedKeepingRoom(PIECES),
    "one dictionary": lambda: FixedKeepingRoom(1),
}


def cost(name: str, keys: int) -> tuple[float, float, float, float]:
    """Bytes for each key and the longest pause in ms: when it is full, and after changes."""
    gc.collect()
    gc.disable()
    before = resident_bytes()
    table = CONTESTANTS[name]()
    filling_s = _fill(table, range(keys))
    full = (resident_bytes() - before) / keys
    changing_s = 0.0
    came, last = keys, keys + min(keys, CHANGES)
    while came < last:
        begin = time.thread_time()
        shard = table.next_shard()
        idle = [key for key, value in shard.items() if value > 0][::FORGOTTEN_OF]
        table.forget(idle)
        changing_s = max(changing_s, time.thread_time() - begin)
        changing_s = max(changing_s, _fill(table, range(came, came + len(idle))))
        came += len(idle)
    changed = (resident_bytes() - before) / keys
    return full, filling_s * 1e3, changed, changing_s * 1e3


def _key(number: int) -> str:
    return f"{address(number)}:{number >> 24}"


def _fill(table: Keys, numbers: range) -> float:
    worst_s = 0.0
    for number in numbers:
        key, value = _key(number), number + 10**15
        begin = time.thread_time()
        table.put(key, value)
        worst_s = max(worst_s, time.thread_time() - begin)
    return worst_s


def main() -> None:
    """Print a row for each table and number of keys."""
    spawn = multiprocessing.get_context("spawn")
    print("table                          keys   bytes    worst ms | after changes")
    for keys, name in chain.from_iterable(((k, n) for n in CONTESTANTS) for k in KEYS):
        rounds = []
        for _ in range(3):
            with spawn.Pool(1) as pool:
                rounds.append(pool.apply(cost, (name, keys)))
        full, filling, changed, changing = map(min, zip(*rounds, strict=True))
        row = f"{full:>8.0f}{filling:>10.2f}   |{changed:>8.0f}{changing:>10.2f}"
        print(f"{name:<26}{keys:>9,}{row}", flush=True)


if __name__ == "__main__":
    main()
