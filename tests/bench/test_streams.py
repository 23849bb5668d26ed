"""What h2load says, understood."""

from __future__ import annotations

import pytest

from bench.errors import BenchError
from bench.streams import parse

REPORT = """starting benchmark...
finished in 2.01s, 24598.00 req/s, 3.10MB/s
requests: 49200 total, 49264 started, 49196 done, 49190 succeeded, 6 failed, 0 errored, 0 timeout
status codes: 49190 2xx, 0 3xx, 5 4xx, 1 5xx
traffic: 6.2MB (6501234) total
"""


def test_a_report() -> None:
    """All answers, those that were not as wanted, and the time that it took."""
    found = parse(REPORT, 2)
    assert (found.requests, found.not_ok, found.errors) == (49_196, 6, 0)
    assert found.seconds == pytest.approx(2.01)
    assert found.ok_per_second == pytest.approx(49_190 / 2.01)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "starting benchmark...\n",
        REPORT.replace("49190 2xx", "0 2xx").replace("5 4xx, 1", "0 4xx, 0"),
    ],
)
def test_a_report_of_nothing(text: str) -> None:
    """It is an error, not a figure."""
    with pytest.raises(BenchError):
        parse(text, 2)
