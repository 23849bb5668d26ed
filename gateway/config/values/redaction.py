"""Keeps passwords and secrets out of all output.

Two methods complement each other. URLs are redacted by structure (`redact` and related functions),
not by the characters of the password: everything before the last `@` is removed. And known secrets
are removed from messages about the value that they came from (`Secrets`), but not from all
messages: otherwise a password `policy` would garble the others and reveal itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

from gateway.stores.kinds import rules_of

HIDDEN: Final = "***"
MIN_LENGTH: Final = 4
"""Shorter secrets are not searched for in sentences: they would match other words."""

_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_PLAIN_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9_.-]*)(:[0-9]*(?=[/?#\s\"',}\]]|$)|(?=[/?#\s\"',}\]]|$))"
)
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://[^\s\"']*")
_IN_PROSE: Final = re.compile(r"://.*@", re.DOTALL)
_OPTION: Final = re.compile(r"password=", re.IGNORECASE)
_KEY_PASSWORD: Final = re.compile(
    r"(?:key_password|\bsecret|key_secret)[\"']?\s*:\s*+(?!(?:true|false|on|off)\b|[\[{])"
)
"""Secrets that are neither in a URL nor in a field; of a policy, `secret` is only a switch,
and a policy may be called so."""
CREDENTIAL: Final = (
    r"authorization|cookie|credential|passw|secret|token|signature|api[-_]?key|auth[-_]?key"
)
"""Parts of names of header fields that carry credentials; for a case-insensitive pattern."""
_FIELD: Final = re.compile(
    r"(?<![\w:-])(?:authorization|cookie|"
    rf"(?=[\w-]{{0,64}}-)[\w-]{{0,64}}(?:{CREDENTIAL})[\w-]{{0,64}})[\"']?:\s{{1,9}}"
    r"(?P<value>\"[^\"]*\"?|'[^']*'?|(?![\[{&*#])(?:\$\{[^{}]*\}|[^,}\]#])+)",
    re.IGNORECASE,
)
"""Such a field and its value on a line of a file."""
_REFERENCE: Final = re.compile(
    r"((?<!\$)\$\{(?:[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?|file:[^{}\s]*)\})"
)


def redact(text: str) -> str:
    """Return a value that is or should be a URL or an address, without credentials."""
    for begin, end in reversed(list(_secret_options(text))):
        text = text[:begin] + HIDDEN + text[end:]
    return _without_login(text)


def _secret_options(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a URL has the values of options that its store calls secret."""
    for url in _URL.finditer(text):
        rules = None if url[1].lower() in {"http", "https"} else rules_of(url[1].lower())
        names = "|".join(map(re.escape, sorted(rules.secrets))) if rules is not None else ""
        for option in re.finditer(rf"[?&](?:{names})=([^&#]*)", url[0]) if names else ():
            yield url.start() + option.start(1), url.start() + option.end(1)


def _without_login(text: str) -> str:
    scheme = _SCHEME.match(text)
    head = scheme.group() if scheme else ""
    rest = text[len(head) :]
    # An encoded = separates nothing; encoded letters of the name are letters.
    names = (part.rpartition("=")[0] for part in re.split("[?&]", rest))
    has_option = any("password" in unquote(name).lower() for name in names)
    if "@" in rest:
        return head + HIDDEN if has_option else f"{head}{HIDDEN}@{rest.rpartition('@')[2]}"
    is_web = head.strip().lower() in {"http://", "https://"}
    if head and not is_web and not _PLAIN_HOST.match(rest):
        # Perhaps a password whose host is missing; upstreams have none.
        return f"{head}{_before_colon(rest)}{HIDDEN}"
    if not has_option:
        return text
    option = _OPTION.search(rest)
    return head + (rest[: option.end()] if option else f"{rest.partition('?')[0]}?") + HIDDEN


def redact_prose(text: str) -> str:
    """Return a sentence that may quote URLs, without their credentials."""
    return _IN_PROSE.sub(f"://{HIDDEN}@", text)


def redact_line(line: str) -> str:
    """Return a line of a file with stars for credentials; columns and references stay."""
    shown = list(line)
    for begin, end in _hidden_parts(line):
        shown[begin:end] = _blank("".join(shown[begin:end]))
    return "".join(shown)


def _hidden_parts(line: str) -> Iterator[tuple[int, int]]:
    at = line.rfind("@")
    for mark in re.finditer("://", line):
        begin, rest = mark.end(), line[mark.end() :]
        is_web = line.endswith(("http", "https"), 0, mark.start())
        if at > begin:
            yield begin, at
        elif not is_web and not rest.startswith("${") and not _PLAIN_HOST.match(rest):
            yield begin + len(_before_colon(rest)), len(line)
    yield from _secret_options(line)
    for field in _FIELD.finditer(line):
        if field["value"].strip("\"'") != "*":
            yield field.span("value")
    for secret in (_OPTION, _KEY_PASSWORD):
        option = secret.search(line)
        if option:
            yield option.end(), len(line)


class Secrets:
    """Texts that must not be shown, collected while a configuration is read."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add(self, text: str) -> None:
        """Add a secret, also in the forms in which messages and URLs quote it."""
        for form in (text, text.strip(), unquote(text)):
            if len(form) >= MIN_LENGTH:
                self._texts |= {form, repr(form)[1:-1], quote(form, safe="")}

    def add_from_url(self, text: str) -> None:
        """Add the password of a text, if it is a URL with one."""
        scheme = _SCHEME.match(text)
        if scheme is None:
            return
        rest = text[scheme.end() :]
        user, at, _ = rest.rpartition("@")
        option = _OPTION.search(rest)
        if at and not option:
            # A user name is not secret, and is often an everyday word.
            self.add(user.partition(":")[2])
        elif option:
            # Its end is unknown: it may contain characters that separate options.
            self.add(rest[rest.find(":") + 1 if at else option.end() :])

    def update(self, others: Secrets) -> None:
        """Add all secrets of others."""
        self._texts |= others._texts

    def __or__(self, others: Secrets) -> Secrets:
        """Return all secrets of both; hide them together: one may be a part of another."""
        both = Secrets()
        both._texts = self._texts | others._texts
        return both

    def hide(self, text: str) -> str:
        """Return the text with every secret removed."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


def _before_colon(rest: str) -> str:
    user, colon, _ = rest.partition(":")
    return user + colon if colon and re.fullmatch(r"[A-Za-z0-9_.-]*", user) else ""


def _blank(text: str) -> str:
    """Return stars for everything except references, which reveal only their default."""
    shown = []
    for part in _REFERENCE.split(text):
        if _REFERENCE.fullmatch(part):
            name, colon, default = part[:-1].partition(":-")
            shown.append(f"{name}{colon}{'*' * len(default)}}}")
        else:
            shown.append("*" * len(part))
    return "".join(shown)
