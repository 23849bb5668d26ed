"""The canonical form of a request path, so that no spelling bypasses a route's policy.

Routes are matched on a canonical form, while the upstream receives the bytes that were sent.
Upstreams interpret those bytes differently: some resolve dot segments, merge slashes, decode `%2F`
or cut off `;parameters`; others do none of this. Two rules make this safe:

1. Paths that no honest client sends, or that upstreams read very differently, are refused:
   control characters and NUL (plain or encoded), characters outside ASCII, `#`, malformed
   escapes, backslashes (plain or encoded), overlong UTF-8, dot segments above the root, and
   dot segments in any disguise: with `;parameters`, next to `%2F`, encoded twice, spelled in
   two ways within one path, or in a path with `//`, `;` or `%2F`.
2. For all others, `readings` lists every path that an upstream may see.
   `RouteTable.find` takes a request only if all of them lead to the same route.

Paths that differ in case or in a trailing slash are different, as in RFC 3986. For an upstream that
ignores trailing slashes, write the route as `/path/**`.

Sources: RFC 3986 sections 2.3, 5.2.4 and 6.2.2; the published route bypasses of Envoy
(CVE-2021-29492), Traefik (CVE-2025-32431, CVE-2025-66490) and Spring (`;` in paths).
"""

from __future__ import annotations

import re
from typing import Final

from gateway.base.errors import BadRequestError
from gateway.routing.escapes import PRINTABLE, Escapes, unescape

_PCHAR: Final = r"A-Za-z0-9_~!$&'()*+,=:@"
"""Characters that a segment may contain and that all servers read alike; `.` and `;` are checked
further.
"""

is_plain: Final = re.compile(rf"(?=/)(?:/[{_PCHAR}-][{_PCHAR}.-]*+)*/?").fullmatch

_NOT_ENCODED: Final = "The path holds a character that must be percent-encoded"
_DELIMITER: Final = "The path holds a delimiter that must be percent-encoded"
_MALFORMED: Final = "The path holds a malformed percent-encoding"
_CONTROL: Final = "The path holds an encoded control character"
_BACKSLASH: Final = "The path holds a backslash"
_OVERLONG: Final = "The path holds overlong UTF-8"

_SLASH: Final = b"\x01"
"""Replaces a slash while all escapes are decoded, including those of slashes; refused otherwise."""
_escape: Final = Escapes(PRINTABLE.translate(None, b" /%?#") + _SLASH).apply
_has_overlong: Final = re.compile(rb"[\xC0\xC1][\x80-\xBF]|\xE0[\x80-\x9F]|\xF0[\x80-\x8F]").search

# Decoded text has lost one level of encoding: escapes left in it were encoded twice or more
# (`%25...`), which some chains of servers decode as well.
_levels: Final = re.compile(r"%(?:25)+").sub
_FAST_LEVELS: Final = 3
"""One pass for each of this many levels is faster than one step per escape."""
_STILL_ENCODED: Final = tuple(
    (spelling, character)
    for escape, character in (("%2E", "."), ("%2F", "/"), ("%5C", "/"), ("%3B", ";"))
    for spelling in (escape, escape.lower())
)

_LONG_RUN: Final = 64 * "/"
_parameters: Final = re.compile(r";[^/]*").sub

_DISGUISED: Final = "The path holds a dot segment that can be read in several ways"


def canonical_path(raw: str) -> str:
    """Return the form of a path that routes are matched on.

    Escapes of printable ASCII characters are decoded, except those of `/ % ? #`; other
    escapes are kept, in upper case. Dot segments are resolved and runs of slashes merged.
    The result is its own canonical form.

    Args:
        raw: the path of the request target, without the query. In absolute form with an
            empty path the caller passes `/`.

    Raises:
        BadRequestError: the path must not be forwarded, whatever the routes; see the module.
    """
    return raw if is_plain(raw) else _decoded_readings(raw)[0]


def counted_path(raw: str) -> str:
    """Return the form of a path under which requests are counted.

    Spellings that an upstream may treat as one path have one form, or each would give a client a
    fresh count: parameters and a trailing slash are removed, `%2F` becomes a slash, and runs of
    slashes are merged. `//a/x` counts as `/x`: to an upstream that reads it as a URL, `a` is a
    meaningless host. (For an upstream that merges slashes, `/a/x` then has two counts, never more.)

    Args:
        raw: as in `canonical_path`; a target that is not a path (`*`) stays as it is.
    """
    if not raw.startswith("/"):
        return raw
    path = canonical_path(raw)
    if raw.startswith("//"):
        path = canonical_path(_without_authority(raw))
    if _is_ambiguous(path):
        path = _merge_slashes(_cut_parameters(_decode_slashes(_cut_parameters(path))))
    return path.rstrip("/") or "/"


def readings(raw: str) -> tuple[str, ...]:
    """Return every path that an upstream may see in `raw`, the canonical form first.

    Arguments and errors as in `canonical_path`. The result is nearly always one path.
    """
    return (raw,) if is_plain(raw) else _decoded_readings(raw)


def _decoded_readings(raw: str) -> tuple[str, ...]:
    text = _decode(raw)
    if _has_dot_segment(text):
        resolved = _resolve_dots(raw, text)
        _refuse_disguised_dots(resolved)
        if len(resolved) > 1 and not text.endswith("/") and resolved.endswith("/"):
            # A dot segment at the end leaves a slash (RFC 3986, section 5.2.4), but not in servers
            # that clean paths like file names.
            return (resolved, resolved[:-1], text)
        return (resolved, text)
    _refuse_disguised_dots(text)
    if not _is_ambiguous(text):
        return (text,)
    seen = {_merge_slashes(text): None, text: None}
    if text.startswith("//"):
        # As a reference (RFC 3986, section 4.2) it begins with an authority; URL parsers that
        # receive the bare target drop it.
        seen[_without_authority(text)] = None
    for rewrite in (_decode_slashes, _cut_parameters, _decode_slashes, _merge_slashes):
        seen.update(dict.fromkeys([rewrite(path) for path in seen]))
    return tuple(seen)


def _decode(raw: str) -> str:
    """Decode one level of percent-encoding, or refuse."""
    if not raw.startswith("/"):
        raise BadRequestError("The path does not begin with a slash", kind="path")
    if not (raw.isascii() and raw.isprintable()) or " " in raw:
        raise BadRequestError(_NOT_ENCODED, kind="path")
    if "?" in raw or "#" in raw:
        raise BadRequestError(_DELIMITER, kind="path")
    if "%" not in raw:
        if "\\" in raw:
            raise BadRequestError(_BACKSLASH, kind="path")
        return raw
    try:
        data = unescape(raw.encode("ascii").replace(b"/", _SLASH))
    except ValueError:
        raise BadRequestError(_MALFORMED, kind="path") from None
    if "%0" in raw or "%1" in raw or b"\x7f" in data:
        raise BadRequestError(_CONTROL, kind="path")
    if b"\\" in data:
        raise BadRequestError(_BACKSLASH, kind="path")
    if not data.isascii() and _has_overlong(data):
        raise BadRequestError(_OVERLONG, kind="path")
    return _escape(data).replace("\x01", "/")


def _has_dot_segment(path: str) -> bool:
    return "/./" in path or "/../" in path or path.endswith(("/.", "/.."))


def _is_ambiguous(text: str) -> bool:
    """Return whether upstreams disagree about where the segments of `text` begin and end."""
    return "//" in text or ";" in text or "%2F" in text


def _resolve_dots(raw: str, text: str) -> str:
    """Remove the dot segments of an otherwise unsuspicious path (RFC 3986, section 5.2.4)."""
    if _is_ambiguous(text):
        raise BadRequestError(_DISGUISED, kind="path")
    if _has_dot_segment(raw) and ("%2E" in raw or "%2e" in raw):
        raise BadRequestError(_DISGUISED, kind="path")
    kept: list[str] = []
    segments = text[1:].split("/")
    for segment in segments:
        if segment == "..":
            if not kept:
                raise BadRequestError("The path climbs above its root", kind="path")
            kept.pop()
        elif segment != ".":
            kept.append(segment)
    if kept and segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _refuse_disguised_dots(text: str) -> None:
    if "%25" in text:
        for _ in range(_FAST_LEVELS):
            text = text.replace("%25", "%")
        text = _levels("%", text)
        for spelling, character in _STILL_ENCODED:
            text = text.replace(spelling, character)
    else:
        text = text.replace("%2F", "/")
    if _has_dot_segment(text) or "/.;" in text or "/..;" in text:
        raise BadRequestError(_DISGUISED, kind="path")


def _without_authority(path: str) -> str:
    """Return the path of a URL that begins with `//` and an authority."""
    return path[path.find("/", 2) :] if "/" in path[2:] else "/"


def _decode_slashes(path: str) -> str:
    return path.replace("%2F", "/")


def _cut_parameters(path: str) -> str:
    return _parameters("", path) if ";" in path else path


def _merge_slashes(path: str) -> str:
    if "//" in path:
        path = path.replace(_LONG_RUN, "/")
    while "//" in path:
        # Each pass halves a run.
        path = path.replace("//", "/")
    return path
