"""`POST /reload` over a real socket, and what came of a reload wherever somebody looks."""

from __future__ import annotations

import json
import logging
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin import AdminServer, OneProcess, Phase, Readiness, ReloadOutcome, ReloadRecord
from gateway.admin.mux import AdminAnswer
from gateway.admin.reloading import MOST_LINES, answer_of, not_possible, outcome_of
from gateway.base.clock import ManualClock
from gateway.base.errors import Problem
from gateway.observe.metrics import GatewayMetrics
from tests.admin.test_api import exchange, get

BAD: Final = Problem(
    "a.yaml", 3, 5, "routes./x.limit", "burts is unknown", "burst", "  limit: x", 2
)
APPLIED: Final = ReloadOutcome(True, (), ("Route /x is new.",))
FAILED: Final = ReloadOutcome(False, (BAD,), ())
BUSY: Final = not_possible("a.yaml", "the gateway is stopping")
POST: Final = "POST /reload HTTP/1.1\r\nHost: localhost\r\n"
JSON: Final = "Content-Type: application/json\r\n"


class _Scripted:
    """A gateway whose reloads come out as told."""

    file = "/etc/sluice.yaml"

    def __init__(self, outcome: ReloadOutcome) -> None:
        self.outcome = outcome
        self.reloads = 0

    async def reload(self) -> ReloadOutcome:
        self.reloads += 1
        return self.outcome


async def _ask(
    request: str, reloadable: _Scripted | None
) -> tuple[int, dict[str, str], dict[str, object]]:
    metrics = GatewayMetrics()
    ready = Readiness(True, Phase.SERVING, ())
    subject = OneProcess(metrics, lambda: ready, ReloadRecord(metrics))
    server = AdminServer("127.0.0.1", 0, subject, reloadable=reloadable)
    await server.start()
    try:
        status, headers, body = await exchange(server, request.encode())
        return status, headers, json.loads(body)
    finally:
        await server.close()


@pytest.mark.parametrize("body", ["", "{}", " {}\n"])
async def test_a_reload_that_succeeds(body: str) -> None:
    """200, what changed, and what is probably not intended."""
    gateway = _Scripted(ReloadOutcome(True, (BAD,), ("Route /x is new.",)))
    request = f"{POST}{JSON}Content-Length: {len(body)}\r\n\r\n{body}"
    status, headers, document = await _ask(request, gateway)
    assert (status, headers["Content-Type"], gateway.reloads) == (200, "application/json", 1)
    assert document["applied"] is True
    assert document["changes"] == ["Route /x is new."]
    assert outcome_of(document) == gateway.outcome


async def test_a_body_in_chunks() -> None:
    """It is read like one with a length."""
    gateway = _Scripted(APPLIED)
    request = f"{POST}{JSON}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
    assert (await _ask(request, gateway))[0] == 200
    assert gateway.reloads == 1


async def test_a_reload_that_fails() -> None:
    """422 and each problem, with all that `sluice check` shows of it."""
    gateway = _Scripted(FAILED)
    status, headers, document = await _ask(f"{POST}{JSON}\r\n", gateway)
    assert (status, headers["Content-Type"]) == (422, "application/problem+json")
    assert document["applied"] is False
    assert document["problems"] == [
        {
            "file": "a.yaml",
            "line": 3,
            "column": 5,
            "key": "routes./x.limit",
            "message": "burts is unknown",
            "hint": "burst",
            "source": "  limit: x",
            "source_column": 2,
        }
    ]
    assert "stays in force" in str(document["detail"])
    assert outcome_of(document) == FAILED


async def test_a_gateway_that_cannot_reload_now() -> None:
    """503, with the reason."""
    status, _, document = await _ask(f"{POST}{JSON}\r\n", _Scripted(BUSY))
    assert status == 503
    assert "the gateway is stopping" in str(document["detail"])
    assert outcome_of(document) == BUSY


async def test_a_gateway_without_a_file() -> None:
    """409: there is nothing to read again."""
    status, _, document = await _ask(f"{POST}{JSON}\r\n", None)
    assert status == 409
    assert "file" in str(document["detail"])
    assert outcome_of(document) is None


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (f"{POST}\r\n", 415),
        (f"{POST}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}", 415),
        (f"{POST}{JSON}Origin: http://evil.test\r\n\r\n", 403),
        (f"{POST}{JSON}Sec-Fetch-Site: cross-site\r\n\r\n", 403),
        (f"{POST}{JSON}Content-Type: text/plain\r\n\r\n", 400),
        (f"POST /reload HTTP/1.1\r\nHost: evil.test\r\n{JSON}\r\n", 421),
        ("GET /reload HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("OPTIONS /reload HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.test\r\n\r\n", 405),
        (
            f"POST /reload HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 9\r\n\r\nlisten: 1",
            400,
        ),
        (f"{POST}{JSON}Content-Length: 2000\r\n\r\n{'{' * 2000}", 413),
        (f"{POST.replace('/reload', '/reload?x=1')}{JSON}\r\n", 200),
    ],
)
async def test_who_may_ask(request_: str, status: int) -> None:
    """No page of another site can, no reading method does, and a configuration is not taken."""
    gateway = _Scripted(APPLIED)
    answered, headers, _ = await _ask(request_, gateway)
    assert answered == status
    assert gateway.reloads == (status == 200)
    assert "Access-Control-Allow-Origin" not in headers


def _record() -> tuple[ReloadRecord, GatewayMetrics, ManualClock]:
    clock = ManualClock(1_000_000)
    metrics = GatewayMetrics(clock=clock)
    clock.advance(seconds=10)
    return ReloadRecord(metrics, clock), metrics, clock


def test_metrics_and_readiness_follow() -> None:
    """What failed is shown until a reload succeeds; what could not be tried is not counted."""
    record, metrics, clock = _record()
    assert record.document == {"applied_at": "1970-01-01T00:00:01Z"}
    record.note(FAILED)
    assert dict(metrics.config_reloads) == {"failed": 1}
    assert (metrics.is_last_reload_applied, metrics.config_applied_us) == (False, 1_000_000)
    assert record.document == {
        "applied_at": "1970-01-01T00:00:01Z",
        "failed_at": "1970-01-01T00:00:11Z",
        "problem": "a.yaml:3:5: routes./x.limit: burts is unknown (burst)",
    }
    record.note(BUSY)
    assert dict(metrics.config_reloads) == {"failed": 1}
    clock.advance(seconds=1)
    record.note(APPLIED)
    assert dict(metrics.config_reloads) == {"failed": 1, "applied": 1}
    assert (metrics.is_last_reload_applied, metrics.config_applied_us) == (True, 12_000_000)
    assert record.document == {"applied_at": "1970-01-01T00:00:12Z"}


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        (APPLIED, ["INFO configuration reloaded: Route /x is new."]),
        (ReloadOutcome(True, (), ()), ["INFO configuration reloaded: nothing has changed"]),
        (
            ReloadOutcome(True, (BAD,), ("A is new.", "B is gone.")),
            ["INFO configuration reloaded: A is new. B is gone.", f"WARNING {BAD}"],
        ),
        (
            FAILED,
            [
                (
                    "ERROR the configuration is not reloaded, the previous configuration stays in "
                    "force: 1 problem"
                ),
                f"ERROR {BAD}",
            ],
        ),
        (BUSY, ["WARNING the configuration is not reloaded: the gateway is stopping"]),
    ],
)
def test_the_log_says_what_came_of_it(
    outcome: ReloadOutcome, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One line for what was applied, and one for each problem."""
    caplog.set_level(logging.INFO)
    _record()[0].note(outcome)
    assert [f"{one.levelname} {one.getMessage()}" for one in caplog.records] == lines


def test_the_log_stays_short(caplog: pytest.LogCaptureFixture) -> None:
    """Of thousands of changes or problems, some are logged, and how many more there are."""
    caplog.set_level(logging.INFO)
    record = _record()[0]
    record.note(ReloadOutcome(True, (), ("A is new.",) * 1000))
    record.note(ReloadOutcome(False, (BAD,) * 1000, ()))
    first, _, *others, last = [one.getMessage() for one in caplog.records]
    assert first.endswith(f" And {1000 - MOST_LINES} more.")
    assert first.count("A is new.") == MOST_LINES
    assert len(others) == MOST_LINES
    assert last == f"and {1000 - MOST_LINES} more; sluice check lists all"


_PROBLEMS = st.builds(
    Problem,
    *(st.text(), st.integers(), st.integers(), st.text(), st.text(), st.text(), st.text()),
    st.integers(),
)
_OUTCOMES = st.builds(
    ReloadOutcome,
    st.booleans(),
    st.lists(_PROBLEMS, max_size=3).map(tuple),
    st.lists(st.text(), max_size=3).map(tuple),
    st.just(value=True),
)


@given(outcome=_OUTCOMES)
def test_an_outcome_survives_the_wire(outcome: ReloadOutcome) -> None:
    """A command prints what the gateway has found, whatever that is."""
    answer: AdminAnswer = answer_of(outcome, "/etc/sluice.yaml")
    assert isinstance(answer.body, bytes)
    kept = outcome if outcome.is_applied else outcome._replace(changes=())
    assert outcome_of(json.loads(answer.body)) == kept


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=10,
)


_ALIKE = st.fixed_dictionaries(
    {"applied": st.booleans()},
    optional={"problems": _JSON, "warnings": _JSON, "changes": _JSON, "status": _JSON},
)


@given(document=_JSON | _ALIKE)
def test_any_answer_can_be_read(document: object) -> None:
    """What is no outcome is none, and never an error."""
    outcome_of(document)


async def test_readyz_shows_a_reload_that_failed() -> None:
    """It stays 200, because the previous configuration serves."""
    record, metrics, _ = _record()
    ready = Readiness(True, Phase.SERVING, ())
    server = AdminServer("127.0.0.1", 0, OneProcess(metrics, lambda: ready, record))
    await server.start()
    try:
        record.note(FAILED)
        status, _, body = await get(server, "/readyz")
    finally:
        await server.close()
    assert status == 200
    assert json.loads(body)["config"] == record.document
    assert "burts" in record.document["problem"]
