"""Readiness follows the phase and the stores that policies cannot do without."""

from __future__ import annotations

import pytest

from gateway.admin import Phase, Readiness, StoreState, judge, judge_workers


def test_serving_without_stores_is_ready() -> None:
    """Nothing speaks against it."""
    assert judge(Phase.SERVING, []) == Readiness(True, Phase.SERVING, ())


def test_a_warning_makes_nobody_less_ready() -> None:
    """It is among the reasons, of one process and of several."""
    expected = Readiness(True, Phase.SERVING, ("the store is full",))
    assert judge(Phase.SERVING, [], "the store is full") == expected
    one = Readiness(True, Phase.SERVING, ())
    assert judge_workers(Phase.SERVING, [one, one], 2, "the store is full") == expected


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.DRAINING])
def test_other_phases_are_not_ready(phase: Phase) -> None:
    """A gateway that starts or drains gets no traffic, in any state of the stores."""
    readiness = judge(phase, [StoreState("redis", is_ready=True, needed_by="a policy")])
    assert readiness == Readiness(False, phase, (f"the gateway is {phase}",))


def test_required_store_that_is_away_is_not_ready() -> None:
    """A policy would refuse all requests, so other gateways should get them."""
    readiness = judge(Phase.SERVING, [StoreState("redis", is_ready=False, needed_by="a policy")])
    assert not readiness.is_ready
    assert readiness.reasons == ("store redis is unavailable and a policy needs it",)


def test_store_that_policies_do_without_is_only_mentioned() -> None:
    """Ready, with a note; stores that answer are not mentioned."""
    stores = [
        StoreState("redis", is_ready=False, needed_by=""),
        StoreState("memory", is_ready=True, needed_by="a policy"),
    ]
    readiness = judge(Phase.SERVING, stores)
    assert readiness.is_ready
    assert readiness.reasons == ("store redis is unavailable; the gateway serves without it",)


SERVING = Readiness(True, Phase.SERVING, ())
STARTING = Readiness(False, Phase.STARTING, ("the gateway is starting",))
DRAINING = Readiness(False, Phase.DRAINING, ("the gateway is draining",))
NEEDY = Readiness(False, Phase.SERVING, ("store main is unavailable and a policy needs it",))


@pytest.mark.parametrize(
    ("phase", "answers", "expected"),
    [
        (Phase.SERVING, [SERVING, SERVING], Readiness(True, Phase.SERVING, ())),
        (
            Phase.SERVING,
            [SERVING],
            Readiness(True, Phase.SERVING, ("1 of 2 workers do not respond",)),
        ),
        (Phase.SERVING, [SERVING, DRAINING], Readiness(True, Phase.SERVING, ())),
        (Phase.SERVING, [SERVING, NEEDY], Readiness(True, Phase.SERVING, NEEDY.reasons)),
        (Phase.SERVING, [NEEDY, NEEDY], Readiness(False, Phase.SERVING, NEEDY.reasons)),
        (Phase.SERVING, [SERVING, STARTING], STARTING),
        (
            Phase.SERVING,
            [],
            STARTING._replace(reasons=(*STARTING.reasons, "2 of 2 workers do not respond")),
        ),
        (
            Phase.STARTING,
            [SERVING],
            STARTING._replace(reasons=(*STARTING.reasons, "1 of 2 workers do not respond")),
        ),
        (Phase.DRAINING, [SERVING, DRAINING], DRAINING),
        (Phase.DRAINING, [], DRAINING),
    ],
)
def test_workers_are_judged_together(
    phase: Phase, answers: list[Readiness], expected: Readiness
) -> None:
    """Ready if one is ready and none is starting; a worker that does not answer is mentioned."""
    assert judge_workers(phase, answers, 2) == expected
