"""A ledger: at whatever word its process is killed, nothing is lost and nothing is half there."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.board.ledger import CHANGES, STATE, USED, Ledger, LedgerEntry, cpu_us, entries
from tests.board.cutting import CHUNK, Killed, Memory

NAMES = [b"a", b"b" * 7, b"c" * 8, b"d" * 9, b"e" * 40, b"f" * 70]

Counts = dict[bytes, list[int]]


@dataclass
class Process:
    """A process that counts, beside what its counts should be.

    Attributes:
        memory: where its ledger is.
        shown: the counts that should be read.
        hidden: the counts of its entries that should not.
    """

    memory: Memory
    shown: Counts = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hidden: Counts = {}
        self.opened: dict[bytes, LedgerEntry] = {}
        self.ledger = Ledger(self.memory.chunk)

    def is_possible(self, act: str, name: bytes) -> bool:
        """Return whether something can be done with the entry of a name."""
        if act in {"open", "open hidden"}:
            return name not in self.opened
        if act == "forget":
            return True
        is_hidden = name in self.hidden
        return name in self.opened and is_hidden is {"show": True, "hide": False}.get(
            act, is_hidden
        )

    def do(self, act: str, name: bytes, number: int) -> None:
        """Do something with the entry of a name."""
        if act in {"open", "open hidden"}:
            count = len(self.shown[name]) if name in self.shown else 1 + number
            self.opened[name] = self.ledger.open(name, count, is_shown=act == "open")
        elif act == "count":
            counts = self.opened[name].counts
            counts[number % len(counts)] += 1
        elif act == "show":
            self.ledger.show(self.opened[name], name)
        elif act == "hide":
            self.ledger.hide(self.opened[name], name)
        elif act == "drop":
            del self.opened[name]
        elif act == "forget":
            self.ledger.forget(name)

    def note(self, act: str, name: bytes, number: int) -> None:
        """Change what should be read, as `do` has changed what is."""
        if act in {"open", "open hidden"} and name not in self.shown:
            (self.shown if act == "open" else self.hidden)[name] = [0] * (1 + number)
        elif act == "count":
            counts = self.shown.get(name) or self.hidden[name]
            counts[number % len(counts)] += 1
        elif act == "show":
            self.shown[name] = self.hidden.pop(name)
        elif act == "hide":
            self.hidden[name] = self.shown.pop(name)
        elif act == "drop":
            self.hidden.pop(name, None)
        elif act == "forget" and name not in self.opened:
            self.shown.pop(name, None)


ACTS = st.tuples(
    st.sampled_from(
        ["open", "open hidden", "count", "count", "count", "show", "hide", "drop", "forget"]
    ),
    st.sampled_from(NAMES),
    st.integers(0, 20),
)


def read(memory: Memory) -> Counts:
    """What another process reads; no name may be there twice."""
    found = list(entries(bytes(memory)))
    assert len(found) == len(dict(found))
    return dict(found)


@given(lives=st.lists(st.tuples(st.lists(ACTS, max_size=30), st.integers(0, 200)), max_size=8))
def test_what_is_read_is_what_was_before_the_cut_or_what_is_after_it(
    lives: list[tuple[list[tuple[str, bytes, int]], int]],
) -> None:
    """Processes follow each other, each killed at any word, and each goes on from there."""
    memory, shown = Memory(), Counts()
    for acts, writes in lives:
        memory.writes = 1 << 30
        process = Process(memory, shown)
        assert read(memory) == shown
        assert memory.words[CHANGES] % 2 == 0
        memory.writes = writes
        for act, name, number in acts:
            if not process.is_possible(act, name):
                continue
            before = {one: [*counts] for one, counts in process.shown.items()}
            try:
                process.do(act, name, number)
            except Killed:
                process.note(act, name, number)
                assert read(memory) in (before, process.shown)
                break
            process.note(act, name, number)
            assert read(memory) == process.shown
        shown = read(memory)


def test_even_the_beginning_may_be_cut() -> None:
    """A ledger that was never used begins with two words."""
    for writes in range(3):
        memory = Memory()
        memory.writes = writes
        with pytest.raises(Killed):
            Ledger(memory.chunk).open(b"a", 2)
        memory.writes = 1 << 30
        assert read(memory) == {}
        Ledger(memory.chunk).open(b"a", 2).counts[1] += 3
        assert read(memory) == {b"a": [0, 3]}


def test_a_place_is_used_again_without_a_moment_that_misleads() -> None:
    """Whatever word is the last: half of it is not read, and a reader notices that it changed."""
    changes = 0
    for writes in range(30):
        memory = Memory()
        ledger = Ledger(memory.chunk)
        ledger.hide(ledger.open(b"old name", 2), b"old name")
        assert memory.words[CHANGES] == changes
        memory.writes = writes
        try:
            entry = ledger.open(b"new", 2)
        except Killed:
            assert read(memory) in ({}, {b"new": [0, 0]})
            assert bool(writes) == (memory.words[CHANGES] != changes)
        else:
            assert entry.begin < memory.words[USED] < CHUNK
            assert memory.words[CHANGES] == changes + 2
            assert writes > 6
            return
        memory.writes = 1 << 30
        Ledger(memory.chunk)
        assert memory.words[CHANGES] % 2 == 0
    pytest.fail("it is never complete")


def test_what_a_killed_process_left_behind_the_end_is_not_read() -> None:
    """Not even where the next one leaves a gap, because its entry has no room there."""
    memory = Memory()
    ledger = Ledger(memory.chunk)
    while memory.words[USED] + 16 < CHUNK:
        ledger.open(b"%d" % memory.words[USED], 3)
    before, end = read(memory), memory.words[USED]
    # All of it is written, but for the word that admits it.
    memory.writes = 8
    with pytest.raises(Killed):
        Ledger(memory.chunk).open(b"cut", 3)
    assert memory.words[end + STATE] == 3 << 32 | 3
    assert read(memory) == before
    memory.writes = 1 << 30
    Ledger(memory.chunk).open(b"large", CHUNK // 2)
    assert read(memory) == {**before, b"large": [0] * (CHUNK // 2)}


def test_a_name_that_is_open_already_has_another_entry() -> None:
    """What counts there is not disturbed, and when it is no longer shown, the other may be."""
    memory = Memory()
    ledger = Ledger(memory.chunk)
    old, new = ledger.open(b"a", 1), ledger.open(b"a", 1, is_shown=False)
    new.counts[0] += 5
    assert read(memory) == {b"a": [0]}
    ledger.hide(old, b"a")
    ledger.show(new, b"a")
    old.counts[0] += 1
    assert read(memory) == {b"a": [5]}


def test_names_that_come_and_go_need_no_more_memory() -> None:
    """A thousand of them take the places of those before."""
    memory = Memory()
    ledger = Ledger(memory.chunk)
    used = 0
    for number in range(1000):
        entry = ledger.open(b"%d" % number, 3)
        entry.counts[2] += number
        assert read(memory) == {b"%d" % number: [0, 0, number]}
        ledger.hide(entry, b"%d" % number)
        del entry
        used = used or memory.words[USED]
        assert memory.words[USED] == used


def test_one_that_is_still_counted_on_makes_no_place() -> None:
    """Nothing that was written to it is read, under no name, until its process lets go of it."""
    memory = Memory()
    ledger = Ledger(memory.chunk)
    old = ledger.open(b"old", 1)
    ledger.hide(old, b"old")
    new = ledger.open(b"new", 1)
    old.counts[0] += 5
    assert new.begin != old.begin
    assert read(memory) == {b"new": [0]}
    begin = old.begin
    del old
    assert ledger.open(b"more", 1).begin == begin
    assert read(memory) == {b"new": [0], b"more": [0]}


def test_without_room_there_is_an_error_and_nothing_else() -> None:
    """Entries that are there go on; one that is larger than a part of the memory has no room."""
    memory = Memory(chunks=2)
    ledger = Ledger(memory.chunk)
    kept: list[LedgerEntry] = []
    with pytest.raises(OSError, match="full"):
        kept.extend(ledger.open(b"%d" % number, 9) for number in range(CHUNK))
    with pytest.raises(OSError, match="too long"):
        ledger.open(b"x" * 8 * CHUNK, 1)
    kept[0].counts[0] += 1
    found = read(memory)
    assert len(found) == len(kept) > 2
    assert found[b"0"][0] == 1
    assert len(read(memory)) == len(Ledger(memory.chunk).names)


def test_a_reader_stops_at_what_it_cannot_see_yet() -> None:
    """A processor may show the end of the entries before the last of them."""
    memory = Memory()
    ledger = Ledger(memory.chunk)
    first, _ = ledger.open(b"a", 1), ledger.open(b"b", 1)
    first.counts[0] += 7
    memory.words[first.begin + 8] = 0
    assert read(memory) == {b"a": [7]}


def test_cpu_times_add_up() -> None:
    """A process adds its own to that of those before it, however often it says so."""
    memory = Memory()
    for _ in range(3):
        ledger = Ledger(memory.chunk)
        for us in (10, 70):
            ledger.used_cpu(us)
    assert cpu_us(bytes(memory)) == 210
