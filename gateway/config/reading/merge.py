"""Merges several files into one configuration: mappings are merged by name, at every depth.

Each value may be in one file only: no file silently overrides another.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.errors import Problem
from gateway.config.reading.nodes import (
    FilePlace,
    MappingNode,
    Member,
    Node,
    SequenceNode,
    show_path,
)
from gateway.config.values.findings import Path


def merge(roots: Sequence[Node]) -> tuple[Node, list[Problem]]:
    """Merge the roots of several files, and report values that two of them have."""
    problems: list[Problem] = []
    joined = roots[0]
    for root in roots[1:]:
        joined = _join(joined, root, (), problems)
    return joined, problems


def _join(first: Node, second: Node, path: Path, problems: list[Problem]) -> Node:
    if not isinstance(first, MappingNode) or not isinstance(second, MappingNode):
        problems.append(_duplicate(first.place, second.place, path, second))
        return first
    members = dict(first.members)
    for name, member in second.members.items():
        known = members.get(name)
        if known is None:
            members[name] = member
        elif _is_section((*path, name)) and isinstance(known.node, MappingNode):
            members[name] = Member(
                known.key, _join(known.node, member.node, (*path, name), problems)
            )
        else:
            problems.append(_duplicate(known.key, member.key, (*path, name), member.node))
    return MappingNode(first.place, members, first.size + second.size)


def _is_section(path: Path) -> bool:
    """Merge sections; each upstream, policy or route must be in one file."""
    return len(path) == 1


def _duplicate(first: FilePlace, second: FilePlace, path: Path, node: Node) -> Problem:
    what = show_path(path) or "this file"
    there = f"{first.document.file}:{first.line}"
    if isinstance(node, SequenceNode) and path:
        message, hint = f"{what} is already a list in {there}", "write a list in one file"
    elif path:
        message, hint = f"{what} is already in {there}", "write each name in one file only"
    else:
        message, hint = "this file is not a mapping, so it cannot be merged with others", ""
    return second.problem(message, hint, show_path(path))
