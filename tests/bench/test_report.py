"""What is printed and written tells the figures, the goals and the failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report import NOTES, text, write
from bench.results import Goal, Result, ratio

RESULT = Result(
    "Speed",
    ["proxy", "requests/s"],
    rows=[["nginx", "60,000"], ["Sluice | ours", "30,000"]],
    goals=[Goal("Sluice / nginx", 0.5, 0.45), Goal("growth", 21.0, 20, is_ceiling=True)],
    broken=["Envoy: not installed"],
    remarks=["The upstream answers with 113 bytes."],
)


@pytest.mark.parametrize(
    ("goal", "is_met"),
    [
        (Goal("", 0.45, 0.45), True),
        (Goal("", 0.449, 0.45), False),
        (Goal("", 2.0, 2.0, is_ceiling=True), True),
        (Goal("", 2.01, 2.0, is_ceiling=True), False),
        (Goal("", None, 0.45), False),
        (Goal("", None, 2.0, is_ceiling=True), False),
    ],
)
def test_goals(goal: Goal, *, is_met: bool) -> None:
    """A bound itself is good enough, and what was not measured is never met."""
    assert goal.is_met is is_met


def test_ratio_of_what_is_missing() -> None:
    """A ratio without one of its sides, or with zero, is empty, not an error or infinity."""
    assert ratio(3.0, 2.0) == pytest.approx(1.5)
    assert ratio(None, 2.0) is None
    assert ratio(3.0, None) is None
    assert ratio(3.0, 0.0) is None


def test_terminal_tells_what_is_missed_and_broken() -> None:
    """Misses and contestants that could not be measured stand out in the terminal."""
    shown = text(RESULT)
    assert "met     Sluice / nginx: 0.50x (goal: at least 0.45x)" in shown
    assert "MISSED  growth: 21.00x (goal: at most 20x)" in shown
    assert "BROKEN  Envoy: not installed" in shown


def test_file_keeps_what_people_wrote(tmp_path: Path) -> None:
    """Writing the file again replaces the figures and keeps the notes, however often."""
    path = tmp_path / "RESULTS.md"
    write(path, [RESULT], ["2 x CPU"], {"nginx": "1.22.1"}, ["terms"])
    noted = path.read_text().replace("Nothing yet.", "Tried: a shorter path.\n\nIt helped.")
    path.write_text(noted.replace("60,000", "1"))
    for _ in range(2):
        write(path, [RESULT], ["2 x CPU"], {"nginx": "1.22.1"}, ["terms"])
    written = path.read_text()
    assert written.endswith(f"{NOTES}\n\nTried: a shorter path.\n\nIt helped.\n")
    assert written.count(NOTES) == 1
    assert "| nginx | 60,000 |" in written
    assert "| Sluice \\| ours | 30,000 |" in written
    assert "| growth | 21.00x | at most 20x | **no** |" in written
    assert "Envoy: not installed" in written
