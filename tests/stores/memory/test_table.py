"""A dictionary in pieces is a dictionary, and its pieces stay small."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.stores.memory.table import SHARD_KEYS, Table

KEYS = st.integers(0, 3000).map(str)


class AsADictionary(RuleBasedStateMachine):
    """Keys come, alone and by the hundred, and are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.model: dict[str, Any] = {}

    @rule(key=KEYS, value=st.integers())
    def put(self, key: str, value: int) -> None:
        """The last value counts, and new keys are told from known ones."""
        assert self.table.put(key, value) == (key not in self.model)
        self.model[key] = value

    @rule(first=st.integers(0, 2000), count=st.integers(300, 900))
    def put_many(self, first: int, count: int) -> None:
        """Shards are split on the way."""
        for number in range(first, first + count):
            self.put(str(number), number)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        """What was put last, or nothing."""
        assert self.table.get(key) == self.model.get(key)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """What is forgotten is gone, all else is not."""
        known = sorted(self.model)[: data.draw(st.integers(0, 1500))]
        self.table.forget(known)
        for key in known:
            del self.model[key]

    @rule()
    def go_round(self) -> None:
        """In a round of the shards each key is met once."""
        distinct = {id(shard) for shard in self.table.shards}
        met = [key for _ in distinct for key in self.table.next_shard()]
        assert sorted(met) == sorted(self.model)

    @invariant()
    def nothing_is_lost(self) -> None:
        """The table has what was put, in pieces that are never larger than agreed."""
        assert len(self.table) == len(self.model)
        assert all(len(shard) <= SHARD_KEYS for shard in self.table.shards)


TestAsADictionary = AsADictionary.TestCase
TestAsADictionary.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_there_is_little_slack_however_many_keys_come_and_go() -> None:
    """Keys that come and go leave less than 48 bytes a key; one large dict takes up to 88."""
    table = Table()
    for number in range(60_000):
        table.put(str(number), None)
        if number % 100 == 0 and number >= 20_000:
            table.forget([str(old) for old in range(number - 20_000, number - 19_900)])
    distinct = {id(shard): shard for shard in table.shards}.values()
    slack = sum(map(sys.getsizeof, distinct)) + sys.getsizeof(table.shards)
    assert slack / len(table) < 48


def test_hashes_that_are_alike_do_not_blow_up_the_directory() -> None:
    """A client that knows the hashes makes one shard large, and nothing else."""

    class Alike(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 0

    table = Table()
    for number in range(2000):
        table.put(Alike(number), number)
    assert len(table) == 2000
    assert len(table.shards) <= 512
    assert table.get(Alike(1234)) == 1234
