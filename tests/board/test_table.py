"""Numbers by name: what is written is read, until there is no room."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gateway.board.table import BUCKET, BoardTable, Spot, spot_of

SECRET = b"of this test"
SMALL = 4 * BUCKET


def _table(entries: int = SMALL) -> BoardTable:
    return BoardTable(memoryview(array("Q", bytes(16 * entries))))


def _spot(name: str, entries: int = SMALL) -> Spot:
    return spot_of(name, SECRET, entries)


NAMES = st.integers(0, 20).map(str)


@given(st.lists(st.tuples(NAMES, st.integers(0, 2**64 - 1))))
def test_it_is_a_dictionary_of_numbers(writes: list[tuple[str, int]]) -> None:
    """As long as names have room, whatever is written and removed in whatever order."""
    table, known = _table(), dict[str, int]()
    for name, number in writes:
        if table.write(_spot(name), number):
            known[name] = number
        else:
            assert not known.get(name)
            assert len([one for one in known.values() if one]) >= BUCKET
        for each in map(str, range(21)):
            assert table.read(_spot(each)) == known.get(each, 0)


def test_a_name_without_room_has_no_number() -> None:
    """Nothing of the others is lost for it, and there is room once one of them is removed."""
    table = _table(BUCKET)
    for name in range(BUCKET):
        assert table.write(_spot(str(name), BUCKET), 1 + name)
    assert not table.write(_spot("more", BUCKET), 1)
    assert table.write(_spot("more", BUCKET), 0)
    assert [table.read(_spot(str(name), BUCKET)) for name in range(BUCKET)] == [*range(1, 9)]
    table.write(_spot("3", BUCKET), 0)
    assert table.write(_spot("more", BUCKET), 7)
    assert table.read(_spot("more", BUCKET)) == 7


def test_nearly_all_of_it_can_be_used() -> None:
    """Two buckets for each name: three quarters of the entries are taken before one has no room."""
    entries = 1 << 13
    table = _table(entries)
    assert all(table.write(_spot(str(name), entries), 1) for name in range(entries * 3 // 4))


@given(st.text(), st.text())
def test_names_have_marks_of_their_own(one: str, other: str) -> None:
    """Which are never 0, the mark of an entry that is free."""
    assert _spot(one).mark
    assert (_spot(one) == _spot(other)) == (one == other)
