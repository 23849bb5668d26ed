"""Durations and sizes, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.values.units import (
    MAX_DURATION_US,
    MAX_SIZE,
    UnitError,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    write_duration,
    write_size,
)


@given(st.integers(1, MAX_DURATION_US))
def test_durations_come_back_exactly(value_us: int) -> None:
    """What is written is read as the same microseconds."""
    assert parse_duration(write_duration(value_us)) == value_us


@given(st.integers(1, MAX_SIZE))
def test_sizes_come_back_exactly(size: int) -> None:
    """What is written is read as the same bytes."""
    assert parse_size(write_size(size)) == size


@pytest.mark.parametrize(
    ("text", "value_us"),
    [
        ("50ms", 50_000),
        ("2s", 2_000_000),
        ("1m", 60_000_000),
        ("1.5h", 5_400_000_000),
        ("1d", 86_400_000_000),
        ("250us", 250),
        (" 2 s ", 2_000_000),
        ("0.1s", 100_000),
    ],
)
def test_durations_are_read(text: str, value_us: int) -> None:
    """Every unit, fractions, and spaces around."""
    assert parse_duration(text) == value_us


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("1B", 1), ("16KiB", 16_384), ("10MB", 10_000_000), ("1.5 MiB", 1_572_864)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    """Binary and decimal units, and bytes without one."""
    assert parse_size(text) == size


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    """Nothing but UnitError comes out, and it has words."""
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except UnitError as error:
            assert error.message  # noqa: PT017 - the other way out is as good
            assert error.hint  # noqa: PT017


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (1, "1 µs"),
        (100_000, "100 ms"),
        (1_500, "1.5 ms"),
        (142_858, "143 ms"),
        (2_000_000, "2 s"),
        (90_000_000, "1 min 30 s"),
        (3_600_000_000, "1 h"),
        (90_000_000_000, "1 day 1 h"),
        (172_800_000_000, "2 days"),
    ],
)
def test_durations_are_shown_to_people(value_us: int, text: str) -> None:
    """Two units and three digits are all that people read."""
    assert format_duration(value_us) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(5, "5 B"), (16_384, "16 KiB"), (10_000_000, "10 MB"), (1_572_864, "1.5 MiB")],
)
def test_sizes_are_shown_to_people(size: int, text: str) -> None:
    """In the unit in which the number is round."""
    assert format_size(size) == text
