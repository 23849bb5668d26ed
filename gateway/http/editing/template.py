"""Values of header fields with variables in them: `blue-{client_ip}`.

A name in braces stands for a property of the request; doubled braces are literal braces. Values of
variables are used as they were sent, never decoded, and the result never contains a line end, so
that a client cannot inject a header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

HEADER: Final = "header."
"""The prefix of variables that stand for a header field of the request."""
VARIABLES: Final = ("client_ip", "host", "method", "path", "query", "route", "scheme")

_piece: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_is_header: Final = re.compile(r"header\.[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class TemplateError(ValueError):
    """Text that is not a valid template; `hint` says how to fix it, `offset` where it is wrong."""

    def __init__(self, message: str, hint: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset


class Template(NamedTuple):
    """Alternating text and variables.

    Attributes:
        text: as it was written.
        literals: the text before, between and after the variables; one more than these.
        names: the variables.
    """

    text: str
    literals: tuple[str, ...]
    names: tuple[str, ...]


def parse_template(text: str, known: Collection[str] = VARIABLES) -> Template:
    """Read a template.

    Args:
        text: as it was written.
        known: the allowed variables; header fields are allowed if `HEADER` is among them.

    Raises:
        TemplateError: a variable is unknown, a brace is unmatched, or there is a control character.
    """
    control = _CONTROL.search(text)
    if control:
        message = "a header field cannot contain a control character"
        raise TemplateError(message, "write one line of text", control.start())
    literals = [""]
    names: list[str] = []
    end = 0
    for match in _piece.finditer(text):
        literals[-1] += text[end : match.start()]
        end = match.end()
        name = match[1]
        if match[0] in ("{{", "}}"):
            literals[-1] += match[0][0]
        elif name is None:
            raise TemplateError(
                f"{match[0]!r} is unmatched", f"write {match[0] * 2} for a literal brace", end - 1
            )
        elif (name in known and name != HEADER) or (HEADER in known and _is_header(name)):
            names.append(name)
            literals.append("")
        else:
            raise TemplateError(
                f"{{{name}}} is not a known variable", _hint(name, known), match.start()
            )
    literals[-1] += text[end:]
    return Template(text, tuple(literals), tuple(names))


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1, 0.6)
    if near:
        return f"did you mean {{{near[0]}}}?"
    names = [f"{{{HEADER}NAME}}" if one == HEADER else f"{{{one}}}" for one in known]
    return f"known variables: {', '.join(names)}; write {{{{ or }}}} for a literal brace"


def renderer(
    template: Template, getters: Mapping[str, Callable[[T], str]]
) -> Callable[[T], bytes] | bytes:
    """Return what makes the value for a request: a function, or bytes if it is always the same.

    Args:
        template: what to fill in.
        getters: for each variable, a function that finds it in a request. It returns the text as it
            was sent, with surrogates for bytes that are not UTF-8.
    """
    first = template.literals[0].encode()
    if not template.names:
        return first
    rest = [
        (getters[name], literal.encode())
        for name, literal in zip(template.names, template.literals[1:], strict=True)
    ]

    def render(request: T) -> bytes:
        value = first
        for get, literal in rest:
            value += get(request).encode("utf-8", "surrogateescape") + literal
        # No value from a request contains a line end; if one ever does, it is cut here.
        return value.translate(None, b"\r\n\0")

    return render
