"""The keys of limits: `ip`, `route`, `header:X-API-Key`, joined by `+`.

Only the words; `gateway.routing.keys` applies them to requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from gateway.limits.cursor import Cursor

PLAIN_KEYS: Final = ("ip", "route", "all", "host", "method")
NAMED_KEYS: Final = ("header", "cookie", "query", "path", "jwt", "json", "form")
PLACE_KEYS: Final = ("country", "asn")
"""What a database says of the client's address."""
CALLER_KEYS: Final = ("owner", "resource")
"""Keys that only callers of other systems' protocols have; HTTP requests do not."""
CLIENT_CERTIFICATE: Final = "client_cert"
CERTIFICATE_DETAILS: Final = ("subject", "san", "fingerprint")
"""Details of a client certificate that a limit can count by; the first is the default."""

_TOKEN: Final = re.compile(r"[!#$%&'*.^_`|~0-9A-Za-z-]+")
_NAMES: Final = {
    "query": re.compile(r"[\x21-\x2a\x2c-\x7e]+"),
    "path": re.compile(r"[A-Za-z_][A-Za-z0-9_]*"),
    "jwt": re.compile(r"[A-Za-z0-9_:.-]+"),
    "json": re.compile(r"[A-Za-z0-9_$@:-]+(?:\.[A-Za-z0-9_$@:-]+)*"),
    "form": re.compile(r"[\x21-\x2a\x2c-\x7e]+"),
}
"""The names of each kind; those of other kinds are tokens (RFC 9110, section 5.6.2)."""
_EXAMPLE_NAMES: Final = {
    "header": "X-API-Key",
    "cookie": "session",
    "query": "api_key",
    "path": "id",
    "jwt": "sub",
    "json": "user",
    "form": "user",
}

_OTHER_WORDS: Final = {
    **dict.fromkeys(("everybody", "everyone", "global", "total", "any"), "all"),
    **dict.fromkeys(("client", "address", "addr", "remote_addr", "client_ip"), "ip"),
    **dict.fromkeys(("tls", "mtls", "certificate", "client_dn"), CLIENT_CERTIFICATE),
    **dict.fromkeys(("geo", "geoip", "country_code", "geoip_country_code"), "country"),
    **dict.fromkeys(("as", "as_number", "autonomous_system"), "asn"),
}
"""Names that other servers and people use."""

_SAID_BY: Final = {
    **dict.fromkeys(
        ("user", "userid", "username", "account", "customer", "tenant", "client_id", "consumer"),
        "header:X-User or cookie:session, whichever identifies the user",
    ),
    **dict.fromkeys(("apikey", "api"), "header:X-API-Key or query:api_key"),
    **dict.fromkeys(("token", "bearer", "auth", "authentication"), "header:Authorization"),
    **dict.fromkeys(("body", "login", "email"), "json:user or form:user, a field of the body"),
    **dict.fromkeys(("claim", "claims", "sub", "subject"), "jwt:sub"),
    **dict.fromkeys(("session", "sessionid", "sid"), "cookie:session"),
    **dict.fromkeys(
        ("path", "url", "uri", "endpoint", "service"),
        "route, which counts all paths of a route together, or path:id for /users/{id}",
    ),
    **dict.fromkeys(("domain", "vhost", "server_name"), "host"),
    **dict.fromkeys(("verb", "request_method"), "method"),
    **dict.fromkeys(("xff", "xforwardedfor"), "ip, and trusted_proxies: [10.0.0.0/8]"),
    **dict.fromkeys(("param", "parameter", "arg", "args"), "query:NAME"),
}
"""Keys to use in place of common words, in lower case without _ and -."""
_IN_BRACKETS: Final = re.compile(
    r"(header|cookie|query)s?[\[(.=]+[\"']?([\w-]+)[\"']?[\])]*", re.IGNORECASE
)
_OF_NGINX: Final = re.compile(r"\$\{?(?:(?P<kind>http|cookie|arg)_(?P<name>\w+)|(?P<plain>\w+))\}?")
_KINDS_OF_NGINX: Final = {"http": "header", "cookie": "cookie", "arg": "query"}


def read_keys(line: Cursor) -> tuple[str, ...]:
    """Read keys joined by `+`.

    Returns:
        Their canonical words, in order, such as `header:x-api-key`.

    Raises:
        LimitSyntaxError: a key is missing, unknown or given twice.
    """
    begin = line.position
    keys = [_key(line)]
    while True:
        line.skip_gap()
        if not line.text.startswith("+", line.position):
            break
        line.position += 1
        line.skip_gap()
        at = line.position
        key = _key(line)
        if key in keys:
            raise line.error(at, f"{key!r} is named twice", "each key once")
        keys.append(key)
    if len(keys) > 1 and "all" in keys:
        hint = "all counts everybody together: remove it, or the other keys"
        raise line.error(begin, "'all' cannot be combined with other keys", hint)
    return tuple(keys)


def as_written(keys: Iterable[str]) -> str:
    """Return canonical keys as people write them: `client_cert` needs no detail."""
    usual = f"{CLIENT_CERTIFICATE}:{CERTIFICATE_DETAILS[0]}"
    return "+".join(CLIENT_CERTIFICATE if key == usual else key for key in keys)


def _key(line: Cursor) -> str:
    begin = line.position
    word = line.word_at(begin)
    if not word:
        raise line.error(begin, "a key is missing", f"use one of {_keys_text()}")
    kind, colon, name = word.partition(":")
    line.position += len(word)
    if kind == CLIENT_CERTIFICATE:
        detail = name if colon else CERTIFICATE_DETAILS[0]
        if detail not in CERTIFICATE_DETAILS:
            hint = f"use one of {', '.join(CERTIFICATE_DETAILS)}"
            raise line.error(begin, f"{word!r} is not a key", hint)
        return f"{kind}:{detail}"
    if not colon:
        if word in (*PLAIN_KEYS, *PLACE_KEYS, *CALLER_KEYS):
            return word
        raise line.error(begin, f"{word!r} is not a key", _key_hint(word))
    if kind not in NAMED_KEYS:
        raise line.error(begin, f"{kind + ':'!r} is not a key", _key_hint(kind))
    if not name:
        hint = f"for example {kind}:{_EXAMPLE_NAMES[kind]}, without a space"
        raise line.error(begin, f"{word!r} needs a name", hint)
    if not _NAMES.get(kind, _TOKEN).fullmatch(name):
        hint = "use letters, digits, - _ and ."
        if kind == "path":
            hint = "write the name without braces, for example path:id for /users/{id}"
        raise line.error(begin + len(kind) + 1, f"{name!r} is not a valid name of a {kind}", hint)
    return f"{kind}:{name.lower() if kind == 'header' else name}"


def _key_hint(word: str) -> str:
    lower = word.lower()
    instead = _instead_of(word) or _in_another_notation(word)
    if instead:
        return instead
    known = (*PLAIN_KEYS, *PLACE_KEYS, *CALLER_KEYS, *NAMED_KEYS, CLIENT_CERTIFICATE)
    near = get_close_matches(lower, known, 1)
    if near and near[0] in NAMED_KEYS:
        return f"did you mean '{near[0]}:...'?"
    return f"did you mean {near[0]!r}?" if near else f"use one of {_keys_text()}"


def _instead_of(word: str) -> str:
    """Return the hint for a word that is a common mistake; or empty."""
    lower = word.lower()
    bare = lower.replace("_", "").replace("-", "")
    said_by = _SAID_BY.get(lower) or _SAID_BY.get(bare)
    if lower in NAMED_KEYS and not said_by:
        return f"for example {lower}:{_EXAMPLE_NAMES[lower]}"
    if lower in _OTHER_WORDS:
        return f"did you mean {_OTHER_WORDS[lower]!r}?"
    if said_by:
        return f"for example {said_by}"
    if lower.startswith(("x-", "authorization", "user-agent")):
        return f"did you mean 'header:{word}'?"
    return ""


def _in_another_notation(word: str) -> str:
    """Return the hint for a variable of nginx or a word in brackets; or empty."""
    named = _IN_BRACKETS.fullmatch(word)
    if named:
        return f"did you mean '{named[1].lower()}:{named[2]}'?"
    found = _OF_NGINX.fullmatch(word)
    if found is None:
        return ""
    if found["kind"]:
        name = found["name"].replace("_", "-") if found["kind"] == "http" else found["name"]
        return f"did you mean '{_KINDS_OF_NGINX[found['kind']]}:{name}'?"
    plain = found["plain"].removeprefix("binary_")
    return _instead_of(plain) or (f"did you mean {plain!r}?" if plain in PLAIN_KEYS else "")


def _keys_text() -> str:
    named = ", ".join(f"{kind}:NAME" for kind in NAMED_KEYS)
    return f"{', '.join(PLAIN_KEYS)}, {named}, {CLIENT_CERTIFICATE}, {', '.join(PLACE_KEYS)}"
