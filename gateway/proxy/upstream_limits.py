"""An upstream's own `RateLimit*` and `X-RateLimit-*` fields beside the gateway's: bytes in and out.

There are two families: `RateLimit` with `RateLimit-*`, among them the three fields of the draft's
first versions, and `X-RateLimit-*`. No name is ever in a response twice because both tell of
limits. What an upstream says is not trusted to be valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

Combine = Callable[[bytes, bytes], tuple[bytes, bytes]]
"""Combines the lines of an upstream, each after a line end, with those of the gateway, each with
its line end. Returns both without what is not sent.
"""

_their_draft: Final = re.compile(rb"\r\n(?i:ratelimit)(?:-[^:\r\n]*)?:[ \t]*([^\r\n]*)")
_their_legacy: Final = re.compile(rb"\r\n(?i:x-ratelimit-)[^:\r\n]*:[^\r\n]*")
_their_old_draft: Final = re.compile(rb"\r\n(?i:ratelimit-(?!policy:))[^:\r\n]*:[^\r\n]*")
_our_draft: Final = re.compile(rb"(?m)^RateLimit[^\r\n]*\r\n")
_our_legacy: Final = re.compile(rb"(?m)^X-RateLimit-[^\r\n]*\r\n")

_their_legacy_rest: Final = re.compile(rb"\r\n(?i:x-ratelimit-remaining):[ \t]*([^\r\n]*)").findall
_their_old_rest: Final = re.compile(rb"\r\n(?i:ratelimit-remaining):[ \t]*([^\r\n]*)").findall
_our_legacy_rest: Final = re.compile(rb"(?m)^X-RateLimit-Remaining: ([0-9]+)").search
_our_rests: Final = re.compile(rb";r=([0-9]+)").findall
_is_count: Final = re.compile(rb"[0-9]{1,15}").fullmatch

_LISTS: Final = (
    (
        re.compile(rb"\r\n(?i:ratelimit-policy):[ \t]*([^\r\n]*)"),
        re.compile(rb"(?m)^(RateLimit-Policy: [^\r\n]*)"),
    ),
    (
        re.compile(rb"\r\n(?i:ratelimit):[ \t]*([^\r\n]*)"),
        re.compile(rb"(?m)^(RateLimit: [^\r\n]*)"),
    ),
)
"""For each list: its lines in the upstream's answer, and the gateway's line."""
_STRING: Final = rb'"(?:[ !#-\[\]-~]|\\["\\])*"'
_VALUE: Final = (
    rb"-?[0-9]{1,15}(?:\.[0-9]{1,3})?|\?[01]|:[A-Za-z0-9+/=]*:|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*|"
    + _STRING
)
_ITEM: Final = _STRING + rb"(?:;[ ]*[a-z*][a-z0-9_.*-]*(?:=(?:" + _VALUE + rb"))?)*"
_is_list: Final = re.compile(_ITEM + rb"(?:[ \t]*,[ \t]*" + _ITEM + rb")*").fullmatch
"""A List of Strings with parameters (RFC 9651, section 3.1)."""


def replaced(fields: bytes, added: bytes) -> tuple[bytes, bytes]:
    """Send the gateway's fields in place of the upstream's of the same family.

    A family is replaced as a whole: the rest would describe another limit than the gateway's.
    """
    if _our_legacy.search(added):
        fields = _their_legacy.sub(b"", fields)
    if added.startswith(b"RateLimit"):
        fields = _their_draft.sub(b"", fields)
    return fields, added


def kept(fields: bytes, added: bytes) -> tuple[bytes, bytes]:
    """Send the upstream's fields, and the gateway's of the families that it does not have."""
    if _their_legacy.search(fields):
        added = _our_legacy.sub(b"", added)
    if _their_draft.search(fields):
        added = _our_draft.sub(b"", added)
    return fields, added


def merged(fields: bytes, added: bytes) -> tuple[bytes, bytes]:
    """Send the limits of both in the lists, and the more restrictive of both where one has room."""
    ours = _our_legacy_rest(added)
    if ours is not None:
        if _is_less(_their_legacy_rest(fields), int(ours[1])):
            added = _our_legacy.sub(b"", added)
        else:
            fields = _their_legacy.sub(b"", fields)
    if not added.startswith(b"RateLimit"):
        return fields, added
    if not _is_less(_their_old_rest(fields), min(map(int, _our_rests(added)))):
        fields = _their_old_draft.sub(b"", fields)
    for theirs, own in _LISTS:
        items = b", ".join([value.strip(b" \t") for value in theirs.findall(fields)])
        fields = theirs.sub(b"", fields)
        # One that is not valid would take the gateway's with it: clients ignore the whole list.
        if _is_list(items):
            added = own.sub(rb"\1, " + items.replace(b"\\", rb"\\"), added)
    return fields, added


def _is_less(values: list[bytes], ours: int) -> bool:
    """Return whether an upstream says, once and validly, that less remains than the gateway has."""
    value = values[0].strip(b" \t") if len(values) == 1 else b""
    return _is_count(value) is not None and int(value) < ours


COMBINE: Final[Mapping[str, Combine]] = {"replace": replaced, "keep": kept, "merge": merged}
"""By the words of a configuration."""
