"""Which of a listener's rules is about a question: patterns of owners and of resources.

A `*` stands for any text, an empty one and one with slashes included; two of them say no more than
one, so `/v1/**` may be written as people write it elsewhere. All else stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

ANY: Final = "*"
_STARS: Final = re.compile(r"\*+")

Matches = Callable[[str], bool]


class RulePattern(NamedTuple):
    """Which questions a rule is about.

    Attributes:
        owner: a pattern of owners.
        resource: a pattern of resources.
    """

    owner: str = ANY
    resource: str = ANY

    def short(self) -> tuple[str, str]:
        """The same with one star where there are several in a row."""
        return _STARS.sub(ANY, self.owner), _STARS.sub(ANY, self.resource)

    def wider(self) -> Iterator[tuple[str, str]]:
        """Patterns that match all that this one does, itself included: the plain ones."""
        owner, resource = self.short()
        yield from ((one, other) for one in (owner, ANY) for other in (resource, ANY))


def compile_pattern(pattern: str) -> Matches:
    """What tells whether a text is like a pattern, in time that grows with its length only.

    What is between two stars is looked for from the left, and never again further right: if the
    rest fails there it fails everywhere. Else a long text of a stranger's choice could keep the
    event loop for minutes.
    """
    first, *rest = _STARS.split(pattern)
    if not rest:
        return pattern.__eq__
    *middle, last = rest
    inner = "".join(f"(?>.*?{re.escape(part)})" for part in middle)
    match = re.compile(f"{re.escape(first)}{inner}.*{re.escape(last)}", re.DOTALL).fullmatch
    return lambda text: match(text) is not None


def compile_rules(patterns: Sequence[RulePattern]) -> Callable[[str, str], int]:
    """What finds the first pattern that matches an owner and a resource; -1 if none does."""
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
