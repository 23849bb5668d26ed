"""Which of several forms of an answer a client would rather have (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

K = TypeVar("K")

MAX_RANGES: Final = 32
"""Media ranges of one request that are looked at; browsers send less than ten."""
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
        offers: media types in lower case, by what they stand for.
        usual: what is chosen among equals, and if nothing on offer is accepted.
    """
    text = ", ".join(accept)[:MAX_BYTES]
    if not text:
        return usual
    qualities: dict[str, float] = {}
    for one in text.split(",", MAX_RANGES)[:MAX_RANGES]:
        match = _range(one)
        # A range with parameters of its own asks for a variant that is not on offer.
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
    """What the most specific range says of a media type."""
    for one in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if one in qualities:
            return qualities[one]
    return 0.0
