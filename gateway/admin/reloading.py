"""Reloading the configuration, as seen from outside: how to ask for it, and what came of it.

`POST /reload` asks for it. What came of it is told to the client, the log, the metrics and
`/readyz`. How a configuration is loaded and applied does not belong here (`gateway.wiring`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from gateway.admin.mux import AdminAnswer, Query, Resource, json_answer, problem
from gateway.base.clock import US, Clock, wall_us
from gateway.base.errors import Problem
from gateway.observe.metrics import GatewayMetrics

log = logging.getLogger(__name__)

MOST_LINES: Final = 20
"""How many changes or problems of one reload are logged."""

PATH: Final = "/reload"
LONGEST_S: Final = 110.0
"""How long a request may wait: for an upgrade in progress (60 s) or a reload (20 s), and then for
its own reload, which may end when it is not read in time or its store is not available.
"""
KEPT: Final = "the previous configuration stays in force"


class ReloadOutcome(NamedTuple):
    """What came of a reload.

    Attributes:
        is_applied: whether the configuration that was read is in force; also if nothing changed.
        problems: why it is not; or, if it is, what is probably not intended.
        changes: what changed, in sentences; empty if nothing did.
        is_possible: False if it could not be tried, because the gateway is starting or stopping;
            `problems` has one that says so.
    """

    is_applied: bool
    problems: tuple[Problem, ...]
    changes: tuple[str, ...]
    is_possible: bool = True


def not_possible(file: str, message: str, hint: str = "") -> ReloadOutcome:
    """Return the outcome of a reload that cannot be tried at the moment."""
    return ReloadOutcome(False, (Problem(file, 0, 0, "", message, hint),), (), is_possible=False)


class Reloadable(Protocol):
    """A gateway that can reload its configuration."""

    @property
    def file(self) -> str:
        """The file or folder that it reads, as it was named at the start."""

    async def reload(self) -> ReloadOutcome:
        """Read, check and apply the configuration.

        One reload at a time. A request that arrives during one waits for it, and then the
        configuration is read again: it may have changed since.
        """


class FailedUpgrade(NamedTuple):
    """An upgrade of the program that failed.

    Attributes:
        reason: why.
        ended_us: when that was known, in microseconds since 1970.
    """

    reason: str
    ended_us: int


class ReloadState(NamedTuple):
    """Which configuration is in force, in a program that was not replaced.

    Attributes:
        applied_us: when it was read and applied, in microseconds since 1970.
        failed_us: when a later reload failed last; 0 if none has.
        problem: the first problem of that reload.
        upgrade: the last upgrade that failed; None if none has.
    """

    applied_us: int
    failed_us: int = 0
    problem: str = ""
    upgrade: FailedUpgrade | None = None

    def after(self, outcome: ReloadOutcome, now_us: int) -> ReloadState:
        """Return the state after a reload."""
        if not outcome.is_possible:
            return self
        if outcome.is_applied:
            return ReloadState(now_us, upgrade=self.upgrade)
        return self._replace(failed_us=now_us, problem=str(_first(outcome)))


class ReloadRecord:
    """What came of reloads, and which upgrade has failed: for the log, metrics and `/readyz`.

    Args:
        metrics: the counters of the process with the admin listener.
        clock: wall clock in microseconds since 1970.
    """

    def __init__(self, metrics: GatewayMetrics, clock: Clock = wall_us) -> None:
        self._metrics = metrics
        self._clock = clock
        self._state = ReloadState(metrics.config_applied_us)

    def restore(self, state: ReloadState) -> None:
        """Continue the record of a process that this one replaces."""
        self._state = state
        self._metrics.config_applied_us = state.applied_us
        self._metrics.is_last_reload_applied = not state.failed_us

    def note(self, outcome: ReloadOutcome, ended_us: int | None = None) -> None:
        """Log and count an outcome.

        Args:
            outcome: what came of a reload.
            ended_us: when another process knew that, so that both tell the same time; None for now.
        """
        _log(outcome)
        if not outcome.is_possible:
            return
        self._metrics.config_reloads["applied" if outcome.is_applied else "failed"] += 1
        now_us = self._clock() if ended_us is None else ended_us
        self.restore(self._state.after(outcome, now_us))

    def note_upgrade(self, failed: FailedUpgrade) -> None:
        """Count an upgrade that failed; who has tried it logs it."""
        self._metrics.upgrades_failed += 1
        self.restore(self._state._replace(upgrade=failed))

    @property
    def document(self) -> dict[str, str]:
        """Return when the configuration was applied; and if a reload has failed since, why."""
        shown = {"applied_at": _date(self._state.applied_us)}
        if self._state.failed_us:
            failed_at, problem = _date(self._state.failed_us), self._state.problem
            shown |= {"failed_at": failed_at, "problem": problem}
        return shown

    @property
    def failed_upgrade(self) -> dict[str, str]:
        """Return when an upgrade has failed, and why; empty if none has."""
        upgrade = self._state.upgrade
        if upgrade is None:
            return {}
        return {
            "failed_at": _date(upgrade.ended_us),
            "problem": upgrade.reason.partition("\n")[0],
        }


def _date(us: int) -> str:
    return datetime.fromtimestamp(us // US, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _log(outcome: ReloadOutcome) -> None:
    if not outcome.is_possible:
        log.warning("the configuration is not reloaded: %s", _first(outcome).message)
    elif not outcome.is_applied:
        log.error("the configuration is not reloaded, %s: %s", KEPT, _count(outcome.problems))
        _log_each(logging.ERROR, outcome.problems)
    else:
        changes, more = outcome.changes[:MOST_LINES], len(outcome.changes) - MOST_LINES
        words = " ".join(changes) or "nothing has changed"
        also = f" And {more} more." if more > 0 else ""
        log.info("configuration reloaded: %s%s", words, also)
        _log_each(logging.WARNING, outcome.problems)


def _log_each(level: int, problems: Sequence[Problem]) -> None:
    for each in problems[:MOST_LINES]:
        log.log(level, "%s", each)
    if len(problems) > MOST_LINES:
        log.log(level, "and %d more; sluice check lists all", len(problems) - MOST_LINES)


def _first(outcome: ReloadOutcome) -> Problem:
    return outcome.problems[0] if outcome.problems else Problem("", 0, 0, "", "no reason given")


def _count(problems: Sequence[Problem]) -> str:
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"


def reload_on_request(reloadable: Reloadable | None) -> Resource:
    """Reload the configuration on `POST /reload`.

    Args:
        reloadable: the gateway; None for one that was not started with a file.
    """

    async def act(query: Query) -> AdminAnswer:
        if query.body.strip() not in {b"", b"{}"}:
            detail = "The gateway reads its own files: send an empty body, or {}."
            return problem(HTTPStatus.BAD_REQUEST, detail)
        if reloadable is None:
            detail = "The gateway was started without a configuration file."
            return problem(HTTPStatus.CONFLICT, detail)
        return answer_of(await reloadable.reload(), reloadable.file)

    summary = "POST: reads the configuration again and applies it"
    return Resource(PATH, summary, act, ("POST",), LONGEST_S)


def answer_of(outcome: ReloadOutcome, file: str) -> AdminAnswer:
    """Return the response to `POST /reload`.

    Args:
        outcome: what came of it.
        file: what was read, as it was named at the start.
    """
    file = str(Path(file).absolute())
    problems = [_shown(each) for each in outcome.problems]
    if outcome.is_applied:
        changes = list(outcome.changes)
        document = {"applied": True, "changes": changes, "warnings": problems, "file": file}
        return json_answer(HTTPStatus.OK, document)
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    detail = f"The configuration cannot be applied; {KEPT}."
    if not outcome.is_possible:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        detail = f"The configuration cannot be reloaded now: {_first(outcome).message}."
    about = {"title": status.phrase, "status": int(status), "detail": detail}
    failed = {**about, "applied": False, "problems": problems, "file": file}
    return json_answer(status, failed, "application/problem+json")


def outcome_of(document: object) -> ReloadOutcome | None:
    """Return the outcome that a response to `POST /reload` tells of; None if it does not."""
    try:
        told: Any = document
        is_applied: bool = {True: True, False: False}[told["applied"]]
        problems = told["warnings" if is_applied else "problems"]
        changes = tuple(map(str, told["changes"])) if is_applied else ()
        is_possible = is_applied or told["status"] != HTTPStatus.SERVICE_UNAVAILABLE
        return ReloadOutcome(is_applied, tuple(map(_problem, problems)), changes, is_possible)
    except (KeyError, TypeError, ValueError):
        return None


def _shown(each: Problem) -> dict[str, Any]:
    return {
        "file": each.file,
        "line": each.line,
        "column": each.column,
        "key": each.path,
        "message": each.message,
        "hint": each.hint,
        "source": each.source,
        "source_column": each.source_column,
    }


def _problem(shown: Any) -> Problem:
    return Problem(
        str(shown["file"]),
        int(shown["line"]),
        int(shown["column"]),
        str(shown["key"]),
        str(shown["message"]),
        str(shown["hint"]),
        str(shown["source"]),
        int(shown["source_column"]),
    )
