"""Which of a listener's rules applies to a question: patterns of owners and resources.

A `*` stands for any text, including an empty one and one with slashes. Two of them mean the same as
one, so `/v1/**` works as elsewhere. All other characters stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

ANY: Final = "*"
_STARS: Final = re.compile(r"\*+")

Matches = Callable[[str], bool]


class RulePattern(NamedTuple):
    """The questions that a rule applies to.

    Attributes:
        owner: a pattern of owners.
        resource: a pattern of resources.
    """

    owner: str = ANY
    resource: str = ANY

    def short(self) -> tuple[str, str]:
        """Return the patterns with one star in place of several in a row."""
        return _STARS.sub(ANY, self.owner), _STARS.sub(ANY, self.resource)

    def wider(self) -> Iterator[tuple[str, str]]:
        """Yield simple patterns that match everything this one matches, including itself."""
        owner, resource = self.short()
        yield from ((one, other) for one in (owner, ANY) for other in (resource, ANY))


def compile_pattern(pattern: str) -> Matches:
    """Return a function that matches a text in time proportional to its length.

    Text between two stars is searched from the left, without backtracking: if the rest does not
    match after the first occurrence, it matches nowhere. With backtracking, a long text chosen by
    an attacker could block the event loop for minutes.
    """
    first, *rest = _STARS.split(pattern)
    if not rest:
        return pattern.__eq__
    *middle, last = rest
    inner = "".join(f"(?>.*?{re.escape(part)})" for part in middle)
    match = re.compile(f"{re.escape(first)}{inner}.*{re.escape(last)}", re.DOTALL).fullmatch
    return lambda text: match(text) is not None


def compile_rules(patterns: Sequence[RulePattern]) -> Callable[[str, str], int]:
    """Return a function that finds the first pattern that matches; it returns -1 if none does."""
    compiled = [
        (index, compile_pattern(pattern.owner), compile_pattern(pattern.resource))
        for index, pattern in enumerate(patterns)
    ]

    def find(owner: str, resource: str) -> int:
        for index, is_owner, is_resource in compiled:
            if is_owner(owner) and is_resource(resource):
                return index
        return -1

    return find
