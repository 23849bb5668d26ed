"""Whether the gateway should get traffic, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """The phase of the gateway."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class StoreState(NamedTuple):
    """The state of a store, as far as it affects traffic.

    Attributes:
        name: its name; never its URL, which may contain a password.
        is_ready: whether it would reply now.
        needed_by: what refuses requests while it is unavailable, such as "a policy"; or empty.
    """

    name: str
    is_ready: bool
    needed_by: str


class Readiness(NamedTuple):
    """The answer to "should this gateway get traffic?".

    Attributes:
        is_ready: whether it should.
        phase: the phase of the gateway.
        reasons: why not; or, if it is ready, what is unavailable. May be empty.
    """

    is_ready: bool
    phase: Phase
    reasons: tuple[str, ...]


def judge(phase: Phase, stores: Iterable[StoreState], warning: str = "") -> Readiness:
    """Return ready if the gateway serves and every store that it needs is available.

    Args:
        phase: the phase of the gateway.
        stores: the state of each store.
        warning: a remark about the stores that does not affect readiness.
    """
    is_ready = phase is Phase.SERVING
    reasons = [] if is_ready else [f"the gateway is {phase}"]
    for store in stores:
        if store.is_ready:
            continue
        if store.needed_by:
            is_ready = False
            reasons.append(f"store {store.name} is unavailable and {store.needed_by} needs it")
        else:
            reasons.append(f"store {store.name} is unavailable; the gateway serves without it")
    if warning:
        reasons.append(warning)
    return Readiness(is_ready, phase, tuple(reasons))


def judge_workers(
    phase: Phase, answers: Sequence[Readiness], workers: int, warning: str = ""
) -> Readiness:
    """Return whether a gateway of several workers should get traffic.

    It should if at least one is ready and none is still starting. A worker that is missing or does
    not respond is only mentioned: the others serve.

    Args:
        phase: starting until all workers have served once, draining when the gateway ends.
        answers: the readiness of the workers that responded.
        workers: how many workers there should be.
        warning: as for `judge`, about the store that they share.
    """
    phases = {answer.phase for answer in answers}
    if phase is Phase.SERVING and (Phase.STARTING in phases or Phase.SERVING not in phases):
        phase = Phase.STARTING
    is_ready = phase is Phase.SERVING and any(answer.is_ready for answer in answers)
    reasons = [] if phase is Phase.SERVING else [f"the gateway is {phase}"]
    if len(answers) < workers and phase is not Phase.DRAINING:
        reasons.append(f"{workers - len(answers)} of {workers} workers do not respond")
    for answer in answers:
        if answer.phase is Phase.SERVING:
            reasons += [reason for reason in answer.reasons if reason not in reasons]
    if warning:
        reasons.append(warning)
    return Readiness(is_ready, phase, tuple(reasons))
