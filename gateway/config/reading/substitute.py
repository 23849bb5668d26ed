"""`${VAR}`, `${VAR:-default}` and `${file:/run/secrets/x}` in values; `$${` is a literal `${`.

References are replaced in single values, never in the text of the file: a variable can never add
keys or change the structure of a configuration. Nor can the user or password of a URL change the
structure of the URL: there, values are escaped, so that any value is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import quote

from gateway.config.values.written import FilledText, WrittenPart

ReadSecret = Callable[[str], str]
"""Returns the text of a file; raises OSError or UnicodeDecodeError."""

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_SCHEME: Final = r"\s*[A-Za-z][A-Za-z0-9+.-]*://"
_USER: Final = re.compile(
    rf"{_SCHEME}(?P<user>(?:\$\{{[^{{}}]*\}}|[^:@/?#\s])*)"
    r"(?P<colon>:(?P<password>(?:\$\{[^{}]*\}|[^@/?#\s])*))?@"
)
_OPTION: Final = re.compile(
    rf"{_SCHEME}.*[?&]\w*password=(?P<option>(?:\$\{{[^{{}}]*\}}|[^&#\s])*)"
)
"""The position of user and password of a URL, in text whose references are not yet replaced."""
_NOT_UTF8: Final = re.compile("[\ud800-\udfff]")
_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class SubstitutionError(ValueError):
    """A reference that cannot be replaced; `offset` is where in the text it begins."""

    def __init__(self, message: str, hint: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset


class Substituted(NamedTuple):
    """Text with its references replaced.

    Attributes:
        text: the values of the references, and the text around them.
        is_secret: whether it contains a secret that is not the password of a URL.
        secrets: what must not be shown.
    """

    text: FilledText
    is_secret: bool
    secrets: tuple[str, ...]


def substitute(text: str, environ: Mapping[str, str], read_secret: ReadSecret) -> Substituted:
    """Replace every reference in a value.

    A variable that is unset or empty takes its default; the newline at the end of a secret file is
    not part of the secret. References for the user or password of a URL, before the `@` or after
    `password=`, are percent-encoded.

    Raises:
        SubstitutionError: a variable is unset and has no default, a file cannot be read, or
            the reference is malformed.
    """
    parts: list[WrittenPart] = []
    secrets: list[str] = []
    is_secret = False
    login = _Login.of(text)
    end = 0
    for match in _REFERENCE.finditer(text):
        parts.append(WrittenPart(text[end : match.start()], is_given=False))
        end = match.end()
        if match.group() == "$${":
            parts.append(WrittenPart("${", is_given=False))
            continue
        body = match[1]
        if body is None:
            raise _malformed(text, match.start())
        is_file = body.startswith("file:")
        if is_file:
            value = _secret(body[5:].strip(), read_secret, match.start())
        else:
            value = _variable(body, environ, match.start())
        is_password = login.is_password(match.start())
        if is_file or is_password:
            secrets.append(value)
        is_secret = is_secret or (is_file and not is_password)
        parts.append(WrittenPart(login.escape(value, match.start()), is_given=True))
    parts.append(WrittenPart(text[end:], is_given=False))
    return Substituted(FilledText.of(text, tuple(parts)), is_secret, tuple(secrets))


class _Login(NamedTuple):
    """The positions of the user and the password of a URL in a text, if it is one.

    Attributes:
        user: where the user begins and ends.
        password: likewise.
        has_colon: whether a colon in the text separates them; one variable may contain both.
    """

    user: tuple[int, int]
    password: tuple[int, int]
    has_colon: bool

    @classmethod
    def of(cls, text: str) -> _Login:
        """Find the positions in a text."""
        user = _USER.match(text)
        if user is not None:
            has_colon = user["colon"] is not None
            password = user.span("password") if has_colon else user.span("user")
            return cls(user.span("user"), password, has_colon)
        option = _OPTION.match(text)
        return cls((0, 0), option.span("option") if option else (0, 0), has_colon=True)

    def is_password(self, at: int) -> bool:
        """Return whether the password, or all credentials, begin at a position."""
        return self.password[0] <= at < self.password[1] and self.has_colon

    def escape(self, value: str, at: int) -> str:
        """Return a value as it must be written in the URL."""
        if self.password[0] <= at < self.password[1] or self.user[0] <= at < self.user[1]:
            return quote(value, safe="" if self.has_colon else ":%")
        return value


def _variable(body: str, environ: Mapping[str, str], offset: int) -> str:
    match = _VARIABLE.fullmatch(body)
    if match is None:
        name = re.match(r"[A-Za-z_][A-Za-z0-9_]*", body)
        if name and body[name.end() :].startswith(("-", ":", "?", "=")):
            default = body[name.end() :].lstrip(":-?=")
            hint = f"write a default as ${{{name.group()}:-{default or 'default'}}}"
        else:
            hint = (
                "for example ${PORT}, ${PORT:-8080} or ${file:/run/secrets/key}; a literal "
                "${ is $${"
            )
        raise SubstitutionError(f"${{{body}}} is not a variable", hint, offset)
    name_text, default = match[1], match[2]
    value = environ.get(name_text)
    if value is not None and not is_utf8(value):
        hint = "use UTF-8 text; or ${file:...} with a file in UTF-8"
        raise SubstitutionError(f"the variable {name_text} is not UTF-8", hint, offset)
    if value or (value is not None and default is None):
        return value
    if default is not None:
        return default
    near = get_close_matches(name_text, filter(is_utf8, environ), 1, 0.8)
    hint = f"did you mean {near[0]}? " if near else ""
    hint += f"set it, or give a default: ${{{name_text}:-...}}"
    raise SubstitutionError(f"the variable {name_text} is not set", hint, offset)


def files_in(text: str) -> list[str]:
    """Return the names of the secret files that a text refers to."""
    bodies = (match[1] or "" for match in _REFERENCE.finditer(text))
    return [body[5:].strip() for body in bodies if body.startswith("file:")]


def is_utf8(value: str) -> bool:
    """Return whether it is UTF-8: Python replaces other bytes of the environment by surrogates."""
    return not _NOT_UTF8.search(value)


def _secret(path: str, read_secret: ReadSecret, offset: int) -> str:
    if not path:
        hint = "for example ${file:/run/secrets/key}"
        raise SubstitutionError("${file:} names no file", hint, offset)
    try:
        text = read_secret(path)
    except UnicodeDecodeError:
        hint = "use UTF-8 text"
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
        hint = "a default is plain text; references cannot be nested"
        return SubstitutionError("a reference inside a reference", hint, offset)
    hint = "close it with }, or write $${ for a literal ${"
    return SubstitutionError("${ is not closed", hint, offset)
