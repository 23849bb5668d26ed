"""What a scenario has to tell: a table, the goals it was measured against, remarks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise in numbers.

    Attributes:
        text: what is compared, such as "Sluice / Envoy".
        found: the ratio or figure measured; None where one side could not be measured.
        bound: what it is held to.
        is_ceiling: True where `found` must not exceed the bound, False where it must reach it.
        unit: after the numbers, such as "x" or " MiB".
    """

    text: str
    found: float | None
    bound: float
    is_ceiling: bool = False
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        """Whether the promise holds; one that could not be measured does not."""
        if self.found is None:
            return False
        return self.found <= self.bound if self.is_ceiling else self.found >= self.bound


@dataclass(slots=True)
class Result:
    """The outcome of one scenario.

    Attributes:
        title: a line that says what was measured.
        header: names of the columns.
        rows: cells, already in words.
        goals: the promises.
        broken: contestants that could not be measured, and why.
        remarks: what a reader must know to judge the figures.
    """

    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def ratio(part: float | None, whole: float | None) -> float | None:
    """`part / whole`, or None where one of them is missing."""
    if part is None or not whole:
        return None
    return part / whole
