"""The health of a target, from consecutive checks."""

from __future__ import annotations


class CheckCounter:
    """Changes a target's health after a number of consecutive checks with the other result.

    A target is healthy until it is checked; the first check counts immediately, since no earlier
    result contradicts it.

    Args:
        healthy_after: checks in a row that must pass.
        unhealthy_after: checks in a row that must fail.

    Attributes:
        is_healthy: the present result.
    """

    __slots__ = ("_healthy_after", "_row", "_unhealthy_after", "is_healthy")

    def __init__(self, healthy_after: int, unhealthy_after: int) -> None:
        self._healthy_after = healthy_after
        self._unhealthy_after = unhealthy_after
        self._row = -1
        self.is_healthy = True

    def passed(self, *, is_passed: bool) -> bool:
        """Record a check; return whether the health changed."""
        if is_passed == self.is_healthy:
            self._row = 0
            return False
        needed = self._healthy_after if is_passed else self._unhealthy_after
        self._row = needed if self._row < 0 else self._row + 1
        if self._row < needed:
            return False
        self.is_healthy = is_passed
        self._row = 0
        return True
