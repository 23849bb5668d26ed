"""`${VAR}`, `${VAR:-default}` and `${file:/run/secrets/x}` inside values; `$${` is a plain `${`.

Only the text of single values is touched, never the text of the file: what a variable holds
can therefore never add keys or change the shape of a configuration. Nor can it change the shape
of a URL that it is the password of: there it is escaped, so that any password will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import quote

ReadSecret = Callable[[str], str]
"""Gives the text of a file; raises OSError or UnicodeDecodeError."""

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_PASSWORD: Final = re.compile(
    r"\s*[A-Za-z][A-Za-z0-9+.-]*://[^:@/?#]*:(?P<user>(?:\$\{[^{}]*\}|[^@/?#\s])*)@"
    r"|\s*[A-Za-z][A-Za-z0-9+.-]*://.*[?&]\w*password=(?P<option>(?:\$\{[^{}]*\}|[^&#\s])*)"
)
"""Where the password of a URL stands, in text whose references are not yet replaced."""
_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class SubstitutionError(ValueError):
    """A reference that stands for nothing; `offset` is where in the text it begins."""

    def __init__(self, message: str, hint: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset


class Substituted(NamedTuple):
    """Text with its references replaced.

    Attributes:
        text: what the references stand for, and what is around them.
        is_secret: whether it holds a secret that is not the password of a URL.
        secrets: what must not be shown.
    """

    text: str
    is_secret: bool
    secrets: tuple[str, ...]


def substitute(text: str, environ: Mapping[str, str], read_secret: ReadSecret) -> Substituted:
    """Replace every reference in a value.

    A variable that is unset or empty takes its default; the newline that ends a secret file
    is not part of the secret. What stands for the password of a URL, between `:` and `@` or
    after `password=`, is percent-encoded.

    Raises:
        SubstitutionError: a variable is unset and has no default, a file cannot be read, or
            the reference is malformed.
    """
    parts: list[str] = []
    secrets: list[str] = []
    is_secret = False
    password = _PASSWORD.match(text)
    begin, close = password.span(password.lastgroup or 0) if password else (0, 0)
    end = 0
    for match in _REFERENCE.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match.group() == "$${":
            parts.append("${")
            continue
        body = match[1]
        if body is None:
            raise _malformed(text, match.start())
        is_file = body.startswith("file:")
        if is_file:
            value = _secret(body[5:].strip(), read_secret, match.start())
        else:
            value = _variable(body, environ, match.start())
        is_password = begin <= match.start() < close
        if is_file or is_password:
            secrets.append(value)
        is_secret = is_secret or (is_file and not is_password)
        parts.append(quote(value, safe="") if is_password else value)
    parts.append(text[end:])
    return Substituted("".join(parts), is_secret, tuple(secrets))


def _variable(body: str, environ: Mapping[str, str], offset: int) -> str:
    match = _VARIABLE.fullmatch(body)
    if match is None:
        name = re.match(r"[A-Za-z_][A-Za-z0-9_]*", body)
        if name and body[name.end() :].startswith(("-", ":", "?", "=")):
            default = body[name.end() :].lstrip(":-?=")
            hint = f"a default is written ${{{name.group()}:-{default or 'default'}}}"
        else:
            hint = "such as ${PORT}, ${PORT:-8080} or ${file:/run/secrets/key}; a plain ${ is $${"
        raise SubstitutionError(f"${{{body}}} is not a variable", hint, offset)
    name_text, default = match[1], match[2]
    value = environ.get(name_text)
    if value or (value is not None and default is None):
        return value
    if default is not None:
        return default
    near = get_close_matches(name_text, environ, 1, 0.8)
    hint = f"did you mean {near[0]}? " if near else ""
    hint += f"set it, or give a default: ${{{name_text}:-...}}"
    raise SubstitutionError(f"the variable {name_text} is not set", hint, offset)


def _secret(path: str, read_secret: ReadSecret, offset: int) -> str:
    if not path:
        hint = "such as ${file:/run/secrets/key}"
        raise SubstitutionError("${file:} names no file", hint, offset)
    try:
        text = read_secret(path)
    except UnicodeDecodeError:
        hint = "text in UTF-8"
        raise SubstitutionError(f"the file {path} is not text", hint, offset) from None
    except OSError as error:
        message = f"the file {path} cannot be read"
        reason = error.strerror or str(error)
        if error.filename and str(error.filename) != path:
            reason += f": {error.filename}"
        raise SubstitutionError(message, reason, offset) from None
    return text.removesuffix("\n").removesuffix("\r")


def _malformed(text: str, offset: int) -> SubstitutionError:
    rest = text[offset + 2 :]
    if "}" in rest and "{" in rest.partition("}")[0]:
        hint = "a default is plain text; references are not nested"
        return SubstitutionError("a reference inside a reference", hint, offset)
    hint = "close it with }, or write $${ for a plain ${"
    return SubstitutionError("${ is not closed", hint, offset)
