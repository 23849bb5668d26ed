"""How long a client may take: numbers, without a clock."""

from __future__ import annotations

import pytest

from gateway.proxy.client.timeouts import ClientTimeouts

PATIENCE = ClientTimeouts(head=1, body=60, idle=1, linger=1, rate=50)


@pytest.mark.parametrize(
    ("size", "waited_s", "within_s"),
    [
        (0, 0.0, 60),
        (0, 59.0, 1),
        (1, 59.0, 1.02),
        (50, 60.0, 1),
        (100, 62.5, 0),
        (1_000_000, 60.0, 60),
    ],
)
def test_each_byte_of_a_body_brings_its_time(size: int, waited_s: float, within_s: float) -> None:
    """Never more than between two pieces, and less for a client that has used up its time."""
    assert PATIENCE.for_body(size, waited_s) == pytest.approx(within_s)


def test_a_byte_within_each_limit_does_not_last() -> None:
    """The sum is bounded, though every piece comes in time."""
    waited = size = 0
    while waited + 59 < 10_000 and PATIENCE.for_body(size, waited) >= 59:
        waited += 59
        size += 1

    assert waited < 120


def test_without_a_rate_only_pieces_count() -> None:
    """However long the whole takes."""
    patience = PATIENCE._replace(rate=0)

    assert patience.for_body(1, 1_000_000) == 60
    assert [patience.is_progress(taken) for taken in (0, 1)] == [False, True]


def test_a_reader_takes_a_share_in_each_period() -> None:
    """At the rate, over the time that a piece may take; and something in any case."""
    assert [PATIENCE.is_progress(taken) for taken in (0, 1, 2_999, 3_000)] == [
        *(False, False, False),
        True,
    ]
