"""What dies is started again, and not for ever at once."""

from __future__ import annotations

from gateway.workers.restarts import FIRST_PAUSE_US, LONGEST_PAUSE_US, STEADY_US, Restarts


def test_all_are_due_at_the_beginning() -> None:
    """Each once, in order."""
    restarts = Restarts(["limiter", "worker-1"])
    assert restarts.next_us() == 0
    assert restarts.due(0) == ["limiter", "worker-1"]
    assert not restarts
    assert restarts.due(10**9) == []
    assert restarts.next_us() is None


def test_pauses_grow_to_a_bound_and_end_with_a_steady_child() -> None:
    """The first is none; other children are not affected."""
    restarts = Restarts(["a", "b"])
    restarts.due(0)
    pauses = []
    for _ in range(9):
        restarts.ended("a", STEADY_US - 1, 1000)
        moment = restarts.next_us()
        assert moment is not None
        pauses.append(moment - 1000)
        assert restarts.due(moment - 1) == []
        assert restarts.due(moment) == ["a"]
    doubling = [0, *(FIRST_PAUSE_US << step for step in range(8))]
    assert pauses == [min(pause, LONGEST_PAUSE_US) for pause in doubling]
    restarts.ended("b", 1, 1000)
    assert restarts.due(1000) == ["b"]
    restarts.ended("a", STEADY_US, 1000)
    assert restarts.due(1000) == ["a"]


def test_what_is_forgotten_is_not_started() -> None:
    """Not even what was due soon, or later."""
    restarts = Restarts(["a", "b"])
    restarts.due(0)
    restarts.schedule_successor("a", 0)
    restarts.later("b", 0)
    assert "a" in restarts
    assert restarts.due(FIRST_PAUSE_US) == ["a"]
    restarts.forget()
    assert restarts.due(LONGEST_PAUSE_US) == []
