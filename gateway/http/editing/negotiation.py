"""Which form of a response a client prefers (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

K = TypeVar("K")

MAX_RANGES: Final = 32
"""How many media ranges of one request are considered; browsers send fewer than ten."""
MAX_BYTES: Final = 2048

_range: Final = re.compile(
    r"[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*"
    r"(?:;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*)?",
    re.IGNORECASE,
).fullmatch


def preferred(accept: Sequence[str], offers: Mapping[K, Sequence[str]], usual: K) -> K:
    """Choose one of the offers.

    Args:
        accept: the values of the request's `Accept` fields.
        offers: the name of each form and its media type in lower case.
        usual: the choice among equals, and if no offer is accepted.
    """
    text = ", ".join(accept)[:MAX_BYTES]
    if not text:
        return usual
    qualities: dict[str, float] = {}
    for one in text.split(",", MAX_RANGES)[:MAX_RANGES]:
        match = _range(one)
        # A range with parameters asks for a variant that is not offered.
        if match is not None:
            qualities[match[1].lower()] = float(match[2] or 1)
    best = usual
    best_quality = max(_quality(kind, qualities) for kind in offers[usual])
    for key, kinds in offers.items():
        quality = max(_quality(kind, qualities) for kind in kinds)
        if quality > best_quality:
            best, best_quality = key, quality
    return best


def _quality(kind: str, qualities: Mapping[str, float]) -> float:
    """Return what the most specific range says about a media type."""
    for one in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if one in qualities:
            return qualities[one]
    return 0.0
