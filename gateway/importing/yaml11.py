"""Reads scalars as Go's yaml.v2 does, which other systems use: YAML 1.1, with Go's numbers.

`010` and `0o10` are eight, `1_000` is a thousand, `0b101` five, and `yes`, `on` and `y` are true.
"""

from __future__ import annotations

import re
from typing import Any, Final

from gateway.config.reading.nodes import MappingNode, Node, ScalarNode

_BINARY: Final = r"0[bB][01]+"
_OCTAL: Final = r"0[oO]?[0-7]+"
_HEXADECIMAL: Final = r"0[xX][0-9a-fA-F]+"
_INTEGER: Final = re.compile(rf"([-+]?)(?:({_BINARY})|({_HEXADECIMAL})|({_OCTAL})|(0|[1-9][0-9]*))")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS: Final = 40
_TRUE: Final = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE: Final = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})


def value_of(node: ScalarNode) -> object:
    """Return the value of a scalar: None, bool, int, float or text."""
    if not node.is_plain or isinstance(node.value, bool) or node.value is None:
        return node.value
    written = node.written
    if written in _TRUE:
        return True
    if written in _FALSE:
        return False
    # Text may begin with an underscore, a number may not.
    if len(written) > _MAX_DIGITS or not re.match(r"[-+.0-9]", written):
        return node.value
    digits = written.replace("_", "")
    integer = _INTEGER.fullmatch(digits)
    if integer is not None:
        return _integer(integer)
    return float(digits) if _FLOAT.fullmatch(digits) else written


def plain_of(node: Node) -> Any:
    """Return the data of a node without places."""
    if isinstance(node, ScalarNode):
        return value_of(node)
    if isinstance(node, MappingNode):
        return {name: plain_of(member.node) for name, member in node.members.items()}
    return [plain_of(item) for item in node.items]


def _integer(match: re.Match[str]) -> int:
    sign, binary, hexadecimal, octal, decimal = match.groups()
    if binary or hexadecimal:
        number = int(binary or hexadecimal, 0)
    elif octal:
        number = int(octal.lower().removeprefix("0").removeprefix("o"), 8)
    else:
        number = int(decimal)
    return -number if sign == "-" else number
