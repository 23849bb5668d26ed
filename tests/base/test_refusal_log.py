"""A bound that refuses is told in the log: at once, then once a minute with how often it did."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.base.refusal_log import Refusals
from tests.virtual_time import run

log = logging.getLogger("bound")


def test_a_flood_of_refusals_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged immediately, the thousand that follow as a number, then nothing."""

    async def story() -> None:
        refusals = Refusals(log, "requests are refused: max_pending (8) is reached")
        for _ in range(1001):
            refusals.note()
        await asyncio.sleep(61)
        refusals.note()
        await asyncio.sleep(200)
        refusals.note()
        refusals.stop()

    run(story())
    what = "requests are refused: max_pending (8) is reached"
    assert caplog.messages == [
        what,
        f"{what}: 1000 more since the last message",
        f"{what}: 1 more since the last message",
        what,
    ]


def test_what_was_counted_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway that stops within the minute logs the rest, if there is a rest."""

    async def story() -> None:
        never, often = Refusals(log, "never"), Refusals(log, "often")
        often.note()
        often.note()
        never.stop()
        often.stop()

    run(story())
    assert caplog.messages == ["often", "often: 1 more since the last message"]
