"""Who must answer before a new configuration is used."""

from __future__ import annotations

from gateway.workers.rollout import ANSWER_US, Answers


def test_all_answers_are_waited_for() -> None:
    """Of each child once; an answer that nobody waits for changes nothing."""
    answers = Answers(["limiter", "worker-1"], 1_000)
    answers.expect(1, "limiter")
    answers.expect(2, "worker-1")
    answers.expect(3, "worker-2")
    answers.receive(9)
    answers.receive(1)
    answers.receive(1)
    assert answers.missing == ["worker-1", "worker-2"]
    answers.receive(2)
    answers.receive(3)
    assert answers.missing == []
    assert answers.due_us == 1_000 + ANSWER_US


def test_the_successor_of_a_child_that_ends_must_answer() -> None:
    """Whether it ended before its answer or after."""
    answers = Answers(["worker-1", "worker-2"], 0)
    answers.expect(1, "worker-1")
    answers.expect(2, "worker-2")
    answers.receive(2)
    answers.forget(1)
    answers.forget(2)
    assert answers.missing == ["worker-1", "worker-2"]
    answers.expect(3, "worker-1")
    answers.expect(4, "worker-2")
    answers.receive(3)
    assert answers.missing == ["worker-2"]
    answers.receive(4)
    assert answers.missing == []


def test_a_child_that_did_not_serve_before_may_end_again() -> None:
    """Or a reload could not mend what ends it at each start."""
    answers = Answers(["worker-1"], 0)
    answers.expect(1, "worker-1")
    answers.receive(1)
    answers.expect(2, "worker-2")
    assert answers.missing == ["worker-2"]
    answers.forget(2)
    assert answers.missing == []


def test_a_machine_that_stood_still_delays_the_end() -> None:
    """All its processes may have stopped with this one."""
    answers = Answers([], 0)
    answers.extend(7 * ANSWER_US)
    assert answers.due_us == 8 * ANSWER_US
