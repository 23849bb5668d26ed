"""What is gone is not forgotten, whoever dies."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from gateway.observe.metrics import GatewayMetrics, pieces
from gateway.observe.metrics.exposition import render
from gateway.workers.retired_counters import BLOCK_BYTES, RetiredCounters


@pytest.fixture
def file() -> Iterator[int]:
    """An empty file."""
    with tempfile.TemporaryFile() as opened:
        yield opened.fileno()


def _counted(requests: int) -> GatewayMetrics:
    metrics = GatewayMetrics("", lambda: 0)
    metrics.connections = 5
    for _ in range(requests):
        metrics.route("/**").answered(200, 10)
    return metrics


def test_the_next_limiter_finds_what_the_last_one_buried(file: int) -> None:
    """All of it, and when the first one began; but no gauges."""
    first = RetiredCounters(file, 1000)
    first.add_ended(0.5, list(pieces(_counted(3))))
    first.add_ended(0.25, list(pieces(_counted(4))))
    second = RetiredCounters(file, 2000)
    assert second.started_us == 1000
    assert second.cpu_seconds == 0.75
    assert second.counted.routes["/**"].statuses == {200: 7}
    assert second.counted.connections == 0
    assert b'sluice_requests_total{route="/**",status="200"} 7.0' in render(second.counted)


def test_what_a_limiter_showed_of_itself_outlives_it(file: int) -> None:
    """The last values, once, however many limiters follow."""
    own = GatewayMetrics()
    first = RetiredCounters(file, 1000)
    for lines in (1, 2):
        own.log.lines_dropped = lines
        first.show(lines / 4, list(pieces(own)))
    for _ in range(2):
        later = RetiredCounters(file, 2000)
        assert later.cpu_seconds == 0.5
        assert later.counted.log.lines_dropped == 2


@pytest.mark.parametrize("left", [b"", b"[1000, 0.5, [[", b"\xff", b"{}", b"[]"])
@pytest.mark.parametrize("place", [0, BLOCK_BYTES])
def test_what_cannot_be_read_is_a_beginning(file: int, left: bytes, place: int) -> None:
    """A limiter that was killed while it wrote does not keep the next one from starting."""
    os.pwrite(file, left, place)
    past = RetiredCounters(file, 2000)
    assert (past.started_us, past.cpu_seconds, past.counted.routes) == (2000, 0.0, {})
    assert RetiredCounters(file, 3000).started_us == 2000
