"""Values of header fields with variables in them: `blue-{client_ip}`.

A name in braces stands for something that is known of the request; doubled braces are plain
ones. What a variable holds is taken as it was sent and never decoded, and whatever comes out
has no line end: a header that a client could split would be two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

HEADER: Final = "header."
"""What a variable begins with that stands for a header field of the request."""
VARIABLES: Final = ("client_ip", "host", "method", "path", "query", "route", "scheme")

_piece: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_is_header: Final = re.compile(r"header\.[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class TemplateError(ValueError):
    """Text that is no template; `hint` says what would do, `offset` where it is."""

    def __init__(self, message: str, hint: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset


class Template(NamedTuple):
    """Text and variables in turn.

    Attributes:
        text: as it was written.
        literals: what stands before, between and after the variables; one more than these.
        names: the variables.
    """

    text: str
    literals: tuple[str, ...]
    names: tuple[str, ...]


def parse_template(text: str, known: Collection[str] = VARIABLES) -> Template:
    """Read a template.

    Args:
        text: as it was written.
        known: the variables that there are; header fields are among them if `HEADER` is.

    Raises:
        TemplateError: a variable is not known, a brace stands alone, or there is a control
            character.
    """
    control = _CONTROL.search(text)
    if control:
        message = "a control character cannot stand in a header field"
        raise TemplateError(message, "one line of text", control.start())
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
                f"{match[0]!r} stands alone", f"a plain one is doubled: {match[0] * 2}", end - 1
            )
        elif (name in known and name != HEADER) or (HEADER in known and _is_header(name)):
            names.append(name)
            literals.append("")
        else:
            raise TemplateError(f"{{{name}}} is not known", _hint(name, known), match.start())
    literals[-1] += text[end:]
    return Template(text, tuple(literals), tuple(names))


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1, 0.6)
    if near:
        return f"did you mean {{{near[0]}}}?"
    names = [f"{{{HEADER}NAME}}" if one == HEADER else f"{{{one}}}" for one in known]
    return f"known: {', '.join(names)}; a plain brace is doubled"


def renderer(
    template: Template, getters: Mapping[str, Callable[[T], str]]
) -> Callable[[T], bytes] | bytes:
    """What makes the value for a request: its bytes, if it is the same for all.

    Args:
        template: what to fill in.
        getters: for each variable, what finds it in a request. It gives text as it was sent,
            in which surrogates stand for bytes that are not UTF-8.
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
        # No value that comes from a request has a line end; should one ever, it ends here.
        return value.translate(None, b"\r\n\0")

    return render
