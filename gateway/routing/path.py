"""One reading of a request path, so that no spelling gets around a route's policy.

Routes are matched on a canonical form, while the upstream receives the bytes that were sent.
Origins differ in how they read those bytes: some resolve dot segments, merge slashes, decode
`%2F`, cut off `;parameters`; some do nothing of the kind. Two rules keep that harmless:

1. What no honest client sends, and what origins read in wildly different ways, is refused:
   control characters and NUL (plain or encoded), characters outside ASCII, `#`, malformed
   escapes, backslashes (plain or encoded), overlong UTF-8, dot segments above the root, and
   dot segments in any disguise: with `;parameters`, next to `%2F`, encoded twice, spelled in
   two ways within one path, or in a path with `//`, `;` or `%2F`.
2. For what is left, `readings` lists every path that an origin may see.
   `RouteTable.find` takes a request only if all of them lead to the same route.

What counts as a different path here, as it does in RFC 3986: upper and lower case, and a
trailing slash that was sent. A route for an origin that ignores trailing slashes is written
`/path/**`.

Sources: RFC 3986 sections 2.3, 5.2.4 and 6.2.2; the published route bypasses of Envoy
(CVE-2021-29492), Traefik (CVE-2025-32431, CVE-2025-66490) and Spring (`;` in paths).
"""

from __future__ import annotations

import re
from typing import Final

from gateway.errors import BadRequestError

_PCHAR: Final = r"A-Za-z0-9_~!$&'()*+,=:@"
"""What may stand in a segment and reads the same everywhere; `.` and `;` need a closer look."""

is_plain: Final = re.compile(rf"(?=/)(?:/[{_PCHAR}-][{_PCHAR}.-]*+)*+/?").fullmatch

_REFUSALS: Final = tuple(
    (re.compile(pattern).search, title)
    for pattern, title in (
        (r"[^!-~]", "The path holds a character that must be percent-encoded"),
        (r"[?#]", "The path holds a delimiter that must be percent-encoded"),
        (r"%(?![0-9A-Fa-f]{2})", "The path holds a malformed percent-encoding"),
        (r"%(?:[01]|7[Ff])", "The path holds an encoded control character"),
        (r"\\|%5[Cc]", "The path holds a backslash"),
        (r"%[Cc][01]%[89ABab]|%[Ee]0%[89]|%[Ff]0%8", "The path holds overlong UTF-8"),
    )
)

_KEPT_ENCODED: Final = frozenset("/%?#")
_HEX: Final = "0123456789ABCDEFabcdef"


def _canonical_escape(escape: str) -> str:
    character = chr(int(escape[1:], 16))
    is_decoded = "!" <= character <= "~" and character not in _KEPT_ENCODED
    return character if is_decoded else escape.upper()


_ESCAPES: Final = {
    escape: _canonical_escape(escape)
    for escape in (f"%{high}{low}" for high in _HEX for low in _HEX)
}
_escape: Final = re.compile(r"%..")
_has_dot_segment: Final = re.compile(r"/\.\.?(?:/|\Z)").search
_has_encoded_dot: Final = re.compile(r"%2[Ee]").search

# Applied to decoded text, where one level of encoding is gone: what is still encoded here was
# encoded twice or more (`%25...`), which some chains of servers undo as well.
_SLASH: Final = r"(?:/|%(?:25)*2[Ff]|%(?:25)+5[Cc])"
_DOT: Final = r"(?:\.|%(?:25)+2[Ee])"
_PARAMETERS: Final = r"(?:;|%(?:25)+3[Bb])"
_has_disguised_dots: Final = re.compile(
    rf"{_SLASH}{_DOT}{{1,2}}(?:{_SLASH}|{_PARAMETERS}|\Z)"
).search

_parameters: Final = re.compile(r";[^/]*")
_slashes: Final = re.compile(r"/{2,}")

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
    """Return the form of a path that requests are counted under.

    Spellings that an origin may take for one path are one here, or a client could be somebody new
    with each: without parameters and a slash at the end, with `%2F` as a slash and runs of slashes
    merged.

    Args:
        raw: as in `canonical_path`; a target that is no path (`*`) stays as it is.
    """
    if not raw.startswith("/"):
        return raw
    path = canonical_path(raw)
    if _is_ambiguous(path):
        path = _merge_slashes(_cut_parameters(_decode_slashes(_cut_parameters(path))))
    return path.rstrip("/") or "/"


def readings(raw: str) -> tuple[str, ...]:
    """Return every path that an origin may see in `raw`, the canonical form first.

    Arguments and errors as in `canonical_path`. Nearly always the result is one path.
    """
    return (raw,) if is_plain(raw) else _decoded_readings(raw)


def _decoded_readings(raw: str) -> tuple[str, ...]:
    text = _decode(raw)
    if _has_dot_segment(text):
        resolved = _resolve_dots(raw, text)
        _refuse_disguised_dots(resolved)
        if len(resolved) > 1 and not text.endswith("/") and resolved.endswith("/"):
            # A dot segment at the end leaves a slash (RFC 3986, section 5.2.4), but not where
            # paths are cleaned as file names are.
            return (resolved, resolved[:-1], text)
        return (resolved, text)
    _refuse_disguised_dots(text)
    if not _is_ambiguous(text):
        return (text,)
    seen = {_merge_slashes(text): None, text: None}
    if text.startswith("//"):
        # As a reference (RFC 3986, section 4.2) it begins with an authority; URL parsers
        # that are handed the bare target drop it.
        seen[text[text.find("/", 2) :] if "/" in text[2:] else "/"] = None
    for rewrite in (_decode_slashes, _cut_parameters, _decode_slashes, _merge_slashes):
        seen.update(dict.fromkeys([rewrite(path) for path in seen]))
    return tuple(seen)


def _decode(raw: str) -> str:
    """Undo one level of percent-encoding, or refuse."""
    if not raw.startswith("/"):
        raise BadRequestError("The path does not begin with a slash", kind="path")
    for is_in, title in _REFUSALS:
        if is_in(raw):
            raise BadRequestError(title, kind="path")
    return _escape.sub(lambda match: _ESCAPES[match[0]], raw) if "%" in raw else raw


def _is_ambiguous(text: str) -> bool:
    """Whether origins differ in where the segments of `text` begin and end."""
    return "//" in text or ";" in text or "%2F" in text


def _resolve_dots(raw: str, text: str) -> str:
    """Remove the dot segments of an otherwise unsuspicious path (RFC 3986, section 5.2.4)."""
    if _is_ambiguous(text):
        raise BadRequestError(_DISGUISED, kind="path")
    if _has_dot_segment(raw) and _has_encoded_dot(raw):
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
    if _has_disguised_dots(text):
        raise BadRequestError(_DISGUISED, kind="path")


def _decode_slashes(path: str) -> str:
    return path.replace("%2F", "/")


def _cut_parameters(path: str) -> str:
    return _parameters.sub("", path)


def _merge_slashes(path: str) -> str:
    return _slashes.sub("/", path)
