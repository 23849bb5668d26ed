"""Records in memory are bounded, make room when their time is over, and never before."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.systems.throttr.codec import INSERT, SET, UPDATE, Request
from gateway.systems.throttr.codec_v2 import GRACE_NS
from gateway.systems.throttr.memory_v2 import Memory2
from gateway.systems.throttr.memory_v5 import Memory5
from gateway.systems.throttr.records import GONE, RECORD_BYTES, Record, Records
from tests.systems.throttr.wire import START

MANY = 10**6


def record(ends: int, gone: int | None = None, value: bytes | None = None) -> Record:
    """A record that expires then."""
    return (1, ends, 1, ends if gone is None else gone, value)


def entries(records: Records) -> int:
    """How many entries all heaps and lists of lingering keys have."""
    return sum(len(shard.heap) + len(shard.lingering) for shard in records._shards)


@settings(max_examples=150)
@given(data=st.data())
def test_a_new_record_is_refused_exactly_if_all_others_count(data: st.DataObject) -> None:
    """Whatever was put, changed, removed and swept before, at whatever time."""
    most = data.draw(st.integers(1, 5))
    records, model, now = Records(most, 10**9), dict[bytes, Record](), 0
    keys = [b"%d" % number for number in range(8)]
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.integers(0, 3))
        key = data.draw(st.sampled_from(keys))
        ends = now + data.draw(st.integers(0, 9))
        new = record(ends, ends + data.draw(st.integers(0, 4)))
        before = model.get(key)
        match data.draw(st.sampled_from(("put", "put", "put", "change", "remove", "sweep"))):
            case "put":
                if before is not None and before[1] > now:
                    continue
                live = sum(other[1] > now for name, other in model.items() if name != key)
                assert records.put(key, new, now) == (live < most)
                model.pop(key, None)
                if live < most:
                    model[key] = new
                # Who made room is the records' own affair, as long as it was over.
                for name in list(model):
                    if records.get(name) is None:
                        assert model.pop(name)[1] <= now
            case "change" if before is not None:
                records.change(key, new)
                model[key] = new
            case "remove" if before is not None:
                records.remove(key)
                del model[key]
            case "sweep":
                assert not records.sweep(now, MANY)
                model = {name: kept for name, kept in model.items() if kept[GONE] > now}
        assert {name: records.get(name) for name in keys if records.get(name)} == model
        assert len(records) == len(model) <= most
        assert records.used_bytes == sum(RECORD_BYTES + len(name) for name in model)


def test_bytes_are_bounded_as_well_as_records() -> None:
    """A long value needs the room of many short ones; what has expired makes it."""
    records = Records(MANY, 10 * (RECORD_BYTES + 1))
    for number in range(10):
        assert records.put(b"%d" % number, record(5 if number < 6 else 9), 0)
    long = record(20, value=b"v" * (5 * RECORD_BYTES))
    assert not records.put(b"l", long, 4)
    assert len(records) == 10
    assert records.put(b"l", long, 5)
    assert {key for key in (b"6", b"7", b"8", b"9") if records.get(key)} == {b"6", b"7", b"8", b"9"}
    assert not records.put(b"m", record(20, value=b"v" * 10**6), 5)


def test_sweeping_looks_at_so_many_and_says_whether_more_is_to_do() -> None:
    """A million records that expire together delay no request."""
    records = Records(MANY, 10**9)
    for number in range(1000):
        records.put(b"%d" % number, record(5), 0)
    assert not records.sweep(4, 10)
    assert records.sweep(5, 10)
    assert len(records) == 990
    while records.sweep(5, 100):
        pass
    assert not records.count
    assert not records.used_bytes
    assert not entries(records)


def test_purging_and_changing_over_and_over_leaves_nothing_behind() -> None:
    """Entries that stand for nothing are bounded by the records there are."""
    records = Records(MANY, 10**9)
    memory = Memory2(records)
    insert: Request = (INSERT, b"k", 2, 0, 5, 10**6, 1)
    shorter: Request = (UPDATE, b"k", 1, 2, 1, 0, 0)
    for _ in range(2000):
        memory.answer([insert, shorter, (4, b"k", 0, 0, 0, 0, 0)], START, 0)
    revive: Request = (UPDATE, b"k", 1, 0, 1, 0, 0)
    over: Request = (UPDATE, b"k", 1, 0, 0, 0, 0)
    memory.answer([insert], START, 0)
    for _ in range(2000):
        memory.answer([revive, over], START, 0)
        records.sweep(START, MANY)
    assert records.count == 1
    assert entries(records) <= 256
    records.sweep(START + GRACE_NS, MANY)
    assert not records.count


def test_what_expired_is_forgotten_by_sweeping_alone() -> None:
    """Of version 2 after its grace, of version 5 at once."""
    for memory, gone, last in (
        (Memory2(Records(MANY, 10**9)), GRACE_NS, 1),
        (Memory5(Records(MANY, 10**9), 64), 0, None),
    ):
        memory.answer([(INSERT, b"k", 1, 0, 5, 1, last)], START, 0)
        records = memory._records
        ends = records.get(b"k")
        assert ends is not None
        records.sweep(ends[1] + gone - 1, MANY)
        assert records.count == 1
        records.sweep(ends[1] + gone, MANY)
        assert records.count == 0


def test_a_full_table_refuses_in_the_words_of_each_version() -> None:
    """And it still answers for the records that it has."""
    two, five = Memory2(Records(1, 10**9)), Memory5(Records(1, 10**9), 16)
    first, second = ((INSERT, key, 2, 0, 5, 9, 1) for key in (b"a", b"b"))
    assert (
        two.answer([first, second, first], START, 0)[1].hex() == "00" + "00" * 8 + "02" + "00" * 8
    )
    assert two.answer([first], START, 0)[0][:2] == b"\1\2"
    three: Request = (SET, b"c", 4, 0, 0, 9, b"v")
    assert five.answer([(INSERT, b"a", 4, 0, 5, 9, None), three], START, 0) == [b"\1", b"\0"]
    assert five.answer([three], START + 9 * 10**9, 0) == [b"\1"]


def test_the_estimate_of_a_record_is_not_too_low() -> None:
    """Compared with Python's own allocations, including keys of the usual length."""
    for linger in (False, True):
        records = Records(MANY, 10**9)
        memory = Memory2(records)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(20_000):
                key = b"%020d" % number
                memory.answer([(INSERT, key, 2, 0, 2**60, 1 if linger else 99, 1)], START, 0)
            if linger:
                records.sweep(START + 2 * 10**9, MANY)
                assert entries(records) == 20_000
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert records.used_bytes / 2 < used <= records.used_bytes


def test_buffers_beyond_the_room_are_answered_next_time() -> None:
    """A few bytes that ask for many long buffers do not fill the memory with answers."""
    memory = Memory5(Records(MANY, 10**9), 16)
    get: Request = (6, b"k", 0, 0, 0, 0, None)
    memory.answer([(SET, b"k", 4, 0, 0, 9, b"v" * 1000)], START, 0)
    assert len(memory.answer([get] * 1000, START, 4500)) == 5
    assert memory.counts[13] == 5
