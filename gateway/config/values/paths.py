"""Patterns of routes: `/v1/**`, `api.example.com/v1/pay`, `POST,PUT /users/{id}`.

This module checks and splits the text; `gateway.routing` matches requests.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

from gateway.config.values.redaction import redact
from gateway.routing.methods import METHODS, NEVER_FORWARDED

MAX_PATH: Final = 2_048

_PARAMETER: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_METHODS: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\s*,\s*[A-Za-z][A-Za-z0-9_-]*)*")
_URL: Final = re.compile(r"\S*://.*", re.DOTALL)
_UNRESERVED: Final = re.compile(
    r"%(2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])"
)
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})?")
_NOT_IN_URLS: Final = re.compile(r"[\"<>\\^`|]")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_GLUED: Final = re.compile(r"\s*(\S*/\S*):\{")
_OTHER_PARAMETER: Final = re.compile(r"<(?:[a-z]+:)?([A-Za-z_]\w*)>|\{([A-Za-z_]\w*):[^{}]*\}")
"""Parameters of Flask and Django, and of chi and aiohttp."""
_EXPRESSION: Final = re.compile(r"\.[*+]|\\[dwsDWS./]|\(\?|\[[^\]]*\][*+?{]|\$\s*$")
_METHOD_WORDS: Final = frozenset((*METHODS, *NEVER_FORWARDED))


class PathError(ValueError):
    """Text that is not a pattern; `hint` says how to fix it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class PatternParts(NamedTuple):
    """The parts of a pattern; host and path are not yet checked."""

    methods: tuple[str, ...]
    host: str | None
    path: str


def split_pattern(text: str) -> PatternParts:
    """Split `[METHOD[,METHOD] ][host]/path`.

    Raises:
        PathError: it has no path, or the word before it is not a method.
    """
    url = _URL.search(text)
    if url:
        shown = redact(url.group().strip())
        bare = shown.partition("://")[2].rpartition("@")[2]
        raise PathError(f"{shown!r} is a URL", f"write only host and path, for example {bare}")
    glued = _GLUED.match(text)
    if glued:
        message = f"add a space after {glued[1]}:"
        raise PathError(message, f"write {glued[1]}: {{upstream: ...}}")
    _check_no_expression(text)
    last = text.split()[-1:]
    if text.strip().startswith("/") and last and last[0] in _METHOD_WORDS:
        bare = text.strip().removesuffix(last[0]).strip()
        raise PathError(f"{last[0]!r} is a method, and must come first", f"write {last[0]} {bare}")
    before, space, rest = text.strip().partition(" ")
    methods: tuple[str, ...] = ()
    if space and not before.startswith("/"):
        while rest.lstrip().startswith(",") or before.endswith(","):
            more, _, rest = rest.lstrip().partition(" ")
            before += more
        if not _METHODS.fullmatch(before):
            words = re.split(r"[^A-Za-z-]+", before)
            hint = "for example 'POST /v1/pay'"
            if before == "*":
                hint = f"for all methods, remove it: {rest.strip()}"
            elif len(words) > 1 and set(words) <= _METHOD_WORDS:
                hint = f"write {','.join(words)} {rest.strip()}"
            raise PathError(f"{before!r} is not a method", hint)
        methods = tuple(part.strip() for part in before.split(","))
    else:
        rest = text.strip()
    rest = rest.strip()
    host, slash, path = rest.partition("/")
    if slash:
        _check_words(methods, host.split(), slash + path)
    if not slash:
        hint = f"did you mean /{rest}? For a whole host write {rest}/**"
        if rest in {"*", "**"}:
            hint = "for all paths, write /**"
        raise PathError(f"{rest!r} has no path", hint if rest else "for example /v1/pay")
    return PatternParts(methods, host or None, slash + path)


def _check_no_expression(text: str) -> None:
    """Refuse regular expressions and parameters of other servers.

    Raises:
        PathError: it is one.
    """
    parameter = _OTHER_PARAMETER.search(text)
    if parameter:
        name = parameter[1] or parameter[2]
        raise PathError(f"{parameter[0]!r} is not a parameter", f"write {{{name}}}")
    # The part before the first slash is a host, which may contain dots and stars.
    if text.lstrip().startswith(("~", "^")) or _EXPRESSION.search(text, max(text.find("/"), 0)):
        message = f"{text.strip()!r} looks like a regular expression, which routes do not support"
        raise PathError(message, "{name} stands for one segment, and /** for everything below")


def _check_words(methods: tuple[str, ...], words: list[str], path: str) -> None:
    """Refuse a host that was meant as a method.

    Raises:
        PathError: there is one.
    """
    taken = [word.strip(",") for word in words if word.strip(",") in _METHOD_WORDS]
    if not taken:
        return
    others = "".join(word for word in words if word.strip(",") not in _METHOD_WORDS)
    meant = f"{','.join((*methods, *taken))} {others}{path}"
    if methods:
        raise PathError("join several methods with commas", f"write {meant}")
    message = f"{taken[0]!r} is a method, and is in the place of a host"
    raise PathError(message, f"write a space after it: {meant}")


def parse_path(text: str) -> str:
    """Check the path of a route: exact, prefix (`/v1/**`), or with `{name}` segments.

    Raises:
        PathError: it could never match, or probably means something else.
    """
    text = text.strip()
    first, space, rest = text.partition(" ")
    if space and set(first.split(",")) <= _METHOD_WORDS:
        hint = f"write methods: [{', '.join(first.split(','))}] and path: {rest.strip()}"
        raise PathError(f"{first!r} is not part of a path", hint)
    if not text.startswith("/"):
        host, slash, path = text.partition("/")
        hint = f"did you mean /{text}?"
        if slash and "." in host:
            hint = f"write host: {host} and path: /{path}"
        raise PathError(f"{text!r} does not begin with /", hint)
    if len(text) > MAX_PATH:
        raise PathError("the path is too long", f"use at most {MAX_PATH} characters")
    _check_characters(text)
    segments = text[1:].split("/")
    names: set[str] = set()
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if not segment and not is_last:
            raise PathError(f"{text!r} has an empty segment", "use single slashes")
        if segment in {".", ".."}:
            raise PathError(f"{text!r} has a dot segment", "write the path that it leads to")
        if segment == "**" and is_last:
            continue
        _check_segment(segment, text, names, is_last=is_last)
    return text


def _check_segment(segment: str, text: str, names: set[str], *, is_last: bool) -> None:
    if "*" in segment:
        if segment == "**":
            hint = "** is allowed at the end only; use {name} for one segment"
        elif segment == "*":
            more = ", or ** for everything below" if is_last else ""
            hint = f"use {{name}} for one segment{more}"
        else:
            hint = "{name} must be a whole segment, and ** the last one"
        raise PathError(f"{segment!r} is not a segment", hint)
    if "{" in segment or "}" in segment:
        if not _PARAMETER.fullmatch(segment):
            hint = "use a whole segment in braces, for example /users/{id}/orders"
            raise PathError(f"{segment!r} is not a parameter", hint)
        if segment in names:
            raise PathError(f"{segment} occurs twice in {text!r}", "use each name once")
        names.add(segment)


def _check_characters(text: str) -> None:
    if "?" in text or "#" in text:
        raise PathError(f"{text!r} has a query or fragment", "routes match the path only")
    if _CONTROL.search(text):
        raise PathError(f"{text!r} has a space or control character", "write a space as %20")
    odd = _NOT_IN_URLS.search(text)
    if odd:
        hint = f"write {quote(odd.group())}"
        raise PathError(f"{odd.group()} is not allowed in a path", hint)
    if not text.isascii():
        hint = f"write {quote(text, safe='/%*{}~!$&()+,;=:@')}"
        raise PathError(f"{text!r} has characters outside ASCII", hint)
    for escape in _ESCAPE.finditer(text):
        if escape[1] is None:
            raise PathError(
                f"{text!r} has a % that is not an escape", "write a percent sign as %25"
            )
        if escape[1] != escape[1].upper():
            raise PathError(f"{escape[0]} must be in capitals", f"write {escape[0].upper()}")
    plain = _UNRESERVED.search(text)
    if plain:
        character = chr(int(plain[1], 16))
        raise PathError(f"{plain[0]} is a needless escape", f"write {character}")
