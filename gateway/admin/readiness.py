"""Whether the gateway should get traffic, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """What the gateway as a whole is doing."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class StoreState(NamedTuple):
    """How a store is, as far as it matters to traffic.

    Attributes:
        name: its name; never its URL, which may hold a password.
        is_ready: whether it would answer now.
        needed_by: what turns requests away while it does not, such as "a policy"; empty if
            nothing does.
    """

    name: str
    is_ready: bool
    needed_by: str


class Readiness(NamedTuple):
    """The answer to "should this gateway get traffic?".

    Attributes:
        is_ready: yes or no.
        phase: what the gateway is doing.
        reasons: why not; or, where it is ready, what it does without. May be empty.
    """

    is_ready: bool
    phase: Phase
    reasons: tuple[str, ...]


def judge(phase: Phase, stores: Iterable[StoreState], warning: str = "") -> Readiness:
    """Ready is who serves, and whose every store that is needed would answer.

    Args:
        phase: what the gateway is doing.
        stores: how each store is.
        warning: what else there is to say of them; it makes nobody less ready.
    """
    is_ready = phase is Phase.SERVING
    reasons = [] if is_ready else [f"the gateway is {phase}"]
    for store in stores:
        if store.is_ready:
            continue
        if store.needed_by:
            is_ready = False
            reasons.append(f"store {store.name} does not answer and {store.needed_by} needs it")
        else:
            reasons.append(f"store {store.name} does not answer; policies do without it")
    if warning:
        reasons.append(warning)
    return Readiness(is_ready, phase, tuple(reasons))


def judge_workers(
    phase: Phase, answers: Sequence[Readiness], workers: int, warning: str = ""
) -> Readiness:
    """Whether a gateway of several workers should get traffic.

    It should while one of them says so and none is still starting. One that is missing or does
    not answer is only mentioned: the others serve.

    Args:
        phase: starting until all workers have served once, draining when the gateway ends.
        answers: of the workers that answered.
        workers: how many there should be.
        warning: as for `judge`, of the store that they share.
    """
    phases = {answer.phase for answer in answers}
    if phase is Phase.SERVING and (Phase.STARTING in phases or Phase.SERVING not in phases):
        phase = Phase.STARTING
    is_ready = phase is Phase.SERVING and any(answer.is_ready for answer in answers)
    reasons = [] if phase is Phase.SERVING else [f"the gateway is {phase}"]
    if len(answers) < workers and phase is not Phase.DRAINING:
        reasons.append(f"{workers - len(answers)} of {workers} workers do not answer")
    for answer in answers:
        if answer.phase is Phase.SERVING:
            reasons += [reason for reason in answer.reasons if reason not in reasons]
    if warning:
        reasons.append(warning)
    return Readiness(is_ready, phase, tuple(reasons))
