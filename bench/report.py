"""Results in words: tables for the terminal, and `bench/RESULTS.md`.

What people wrote under the last heading of that file (why a goal is missed, what was tried)
is kept when the figures above it are written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.results import Goal, Result

NOTES = "## Notes"
_NO_NOTES = f"{NOTES}\n\nNothing yet."
_LINES = str.maketrans({"|": "\\|", "\n": " "})


def text(result: Result) -> str:
    """One result for a terminal, its columns aligned."""
    rows = [result.header, *result.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(result.header))]
    lines = ["", result.title, "-" * len(result.title)]
    for row in rows:
        cells = [
            cell.rjust(width) if _is_number(cell) else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    lines += [f"  {_goal(goal)}" for goal in result.goals]
    lines += [f"  note    {remark}" for remark in result.remarks]
    lines += [f"  BROKEN  {broken}" for broken in result.broken]
    return "\n".join(lines)


def write(
    path: Path,
    results: Sequence[Result],
    machine: Sequence[str],
    versions: dict[str, str],
    terms: Sequence[str],
) -> None:
    """Write the file, keeping its notes."""
    parts = [
        "# Benchmark results",
        "Written by `make bench`; the notes at the end are by hand, and kept.",
        _bullets(
            [
                f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC",
                *machine,
                "; ".join(f"{name} {version}" for name, version in versions.items()),
            ]
        ),
        _bullets(terms),
        _summary(results),
        *(_section(result) for result in results),
        _notes(path),
    ]
    path.write_text("\n\n".join(parts).rstrip() + "\n", encoding="utf-8")


def _summary(results: Sequence[Result]) -> str:
    rows = [
        [goal.text, _found(goal), _bound(goal), "yes" if goal.is_met else "**no**"]
        for result in results
        for goal in result.goals
    ]
    return "## Goals\n\n" + _table(["what", "measured", "goal", "met"], rows)


def _section(result: Result) -> str:
    parts = [f"## {result.title}", _table(result.header, result.rows)]
    if result.broken:
        parts.append(_bullets([f"**Could not be measured:** {why}" for why in result.broken]))
    if result.remarks:
        parts.append(" ".join(result.remarks))
    return "\n\n".join(parts)


def _notes(path: Path) -> str:
    if not path.exists():
        return _NO_NOTES
    _, found, notes = path.read_text(encoding="utf-8").partition(f"\n{NOTES}\n")
    return f"{NOTES}\n{notes}" if found else _NO_NOTES


def _goal(goal: Goal) -> str:
    verdict = "met   " if goal.is_met else "MISSED"
    return f"{verdict}  {goal.text}: {_found(goal)} (goal: {_bound(goal)})"


def _found(goal: Goal) -> str:
    return "not measured" if goal.found is None else f"{goal.found:.2f}{goal.unit}"


def _bound(goal: Goal) -> str:
    return f"{'at most' if goal.is_ceiling else 'at least'} {goal.bound:g}{goal.unit}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(c.translate(_LINES) for c in line) + " |" for line in lines)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit()
