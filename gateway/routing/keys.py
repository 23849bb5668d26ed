"""The identity under which a limit counts a request.

`compile_key` turns key words such as `header:x-api-key` and `route` into one function. Its
result is text in a normal form:

    203.0.113.7                            per ip
    all                                    per all
    header:x-api-key=s3cret                per header:X-API-Key
    header:x-api-key=s3cret|route=/v1/pay  per header:X-API-Key+route

Different identities never give the same text: values are escaped (`|`, `=`, `%`, braces and
everything that is not printable ASCII), and text longer than 128 bytes ends in a hash of the whole.
Values that an upstream would treat as equal are counted together, so that no client gets a fresh
limit by spelling a credential differently (`values`).

The text is stored as it is, including credentials; only long ones are hashed, and even then the
beginning stays readable. Anyone who can read the store can read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from itertools import product
from math import prod
from operator import attrgetter
from typing import Any, Final, TypeVar

from gateway.limits.key_words import PLACE_KEYS
from gateway.routing.escapes import PRINTABLE, Escapes
from gateway.routing.request_view import RequestView
from gateway.routing.values import AMBIGUOUS, SEVERAL_MAX, Ambiguity, Read, Values, compile_read

MAX_BYTES: Final = 128
"""The longest identity in bytes; longer ones are cut and end in a hash."""

_HASH_BYTES: Final = 16
_READABLE: Final = 48
"""Characters of a long identity that stay readable before its hash."""

_HASH_MARK: Final = "%~"
"""Marks the hash. No escaped value contains it: there, `%` is followed by two hex digits."""

_SAFE: Final = r" -$&-<>-z~"
"""Printable ASCII without `%`, `=`, `{`, `|` and `}`, as ranges of a character class."""

_is_safe: Final = re.compile(f"[{_SAFE}]*+").fullmatch
_escape_unsafe: Final = Escapes(PRINTABLE.translate(None, b"%={|}")).apply


_PLAIN: Final = r" -$&-z|~"
"""The same with `=` and `|`, which join the parts of an identity."""

_is_plain: Final = re.compile(f"[{_PLAIN}]*+").fullmatch
_escape_others: Final = Escapes(PRINTABLE.translate(None, b"%{}")).apply


class Absence(Enum):
    """The result of a key function for a request without an identity."""

    SKIP = "skip"
    """The limit does not count this request."""
    REJECT = "reject"
    """The request must be refused."""
    UNAUTHORIZED = "unauthorized"
    """The request must be refused, and its client told to authenticate itself."""


SKIP: Final = Absence.SKIP
REJECT: Final = Absence.REJECT
UNAUTHORIZED: Final = Absence.UNAUTHORIZED


Key = str | tuple[str, ...] | Absence | Ambiguity
"""An identity; or several, each of which the request counts under; or why there is none."""

KeyFunction = Callable[[RequestView], Key]

Readers = Mapping[str, Callable[[str], Read]]
"""Functions that compile words such as `path:id`, by their kind, from their name."""
NO_READERS: Final[Readers] = {}

T = TypeVar("T")


def compile_key(
    per: Sequence[str], *, if_missing: str, route: str, readers: Readers = NO_READERS
) -> KeyFunction:
    """Compile the words after `per`.

    Args:
        per: `ip`, `route`, `all`, `host`, `method`, `header:name`, `cookie:name`, `query:name`,
            `client_cert:detail` or a word of `readers` (among them `country` and `asn`), in the
            order in which they appear in the identity.
        if_missing: what replaces a header, cookie, query parameter or certificate that is absent or
            empty: with `ip` the client's address, with `shared` one identity for all such requests;
            `skip`, `reject` and `unauthorized` give no identity. A field with several values is
            `AMBIGUOUS` in any case; several cookies give several identities.
        route: the name of the route, for the word `route`.
        readers: of words that depend on the route or the configuration, by their kind.

    Raises:
        ValueError: a word is unknown, or there is none.
    """
    if not per:
        raise ValueError("a key needs at least one word")
    absent = _compile_absent(if_missing)
    if list(per) == ["ip"]:
        # Addresses contain nothing to escape, and no "=" to confuse them with others.
        return attrgetter("client_key")
    if list(per) == ["all"]:
        return lambda _: "all"
    if list(per) == ["route"]:
        constant = bound(f"route={_escape(route)}")
        return lambda _: constant
    return _join([_compile_part(word, absent, route, readers) for word in per])


def compile_caller_key(
    per: Sequence[str],
    whole: Callable[[Any], str],
    words: Mapping[str, Callable[[Any], str]],
) -> Callable[[Any], str]:
    """Compile the words after `per` for clients of other protocols than HTTP.

    Args:
        per: `ip`, the default of a line without `per`, for everything that the client names; `all`;
            or some of `words`, in the order in which they appear in the identity.
        whole: the identity of all values that a client names, in the form of `named`.
        words: functions from a client's request to the value of each further word.

    Raises:
        ValueError: a word is unknown, or there is none.
    """
    if list(per) == ["ip"]:
        return whole
    if list(per) == ["all"]:
        return lambda _: "all"
    if not per or not words.keys() >= set(per):
        raise ValueError(f"{'+'.join(per)!r} is not something that these clients name")
    readers = [(word, words[word]) for word in per]
    return lambda caller: named((word, read(caller)) for word, read in readers)


def named(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the identity of names with their values, one-to-one: `owner=shop|resource=/v1/pay`."""
    return bound("|".join(f"{_escape(name)}={_escape(value)}" for name, value in pairs))


def _compile_absent(if_missing: str) -> Callable[[str, RequestView], str | Absence]:
    """Compile the replacement for the value of a word that the request lacks."""
    match if_missing:
        case "ip":
            return lambda _, request: f"ip={_escape(request.client_key)}"
        case "shared":
            return lambda word, _: f"{word}="
        case "skip":
            return lambda *_: SKIP
        case "reject":
            return lambda *_: REJECT
        case "unauthorized":
            return lambda *_: UNAUTHORIZED
    raise ValueError(f"{if_missing!r} is not one of ip, shared, skip, reject, unauthorized")


def _compile_part(
    word: str, absent: Callable[[str, RequestView], str | Absence], route: str, readers: Readers
) -> KeyFunction:
    match word:
        case "all":
            return lambda _: "all"
        case "route":
            constant = f"route={_escape(route)}"
            return lambda _: constant
        case "ip":
            return lambda request: f"ip={_escape(request.client_key)}"
        case "host":
            return lambda request: f"host={_escape(request.host)}"
        case "method":
            return lambda request: f"method={_escape(request.method)}"
    read = reader_of(word, readers)
    kind, _, name = word.partition(":")
    label = f"{kind}:{_escape(name.lower() if kind == 'header' else name)}" if name else kind

    def text(value: str, request: RequestView) -> str | Absence:
        return f"{label}={_escape(value)}" if value else absent(label, request)

    def part(request: RequestView) -> Key:
        value = read(request)
        if value is None or isinstance(value, str):
            return text(value or "", request)
        found = each(value, lambda one: text(one, request))
        return tuple(found) if isinstance(found, list) else found

    return part


def reader_of(word: str, readers: Readers) -> Read:
    """Return a function that reads the value of a word with a name, or of a place.

    Raises:
        ValueError: the word does not name a value.
    """
    kind, _, name = word.partition(":")
    compile_reader = readers.get(kind) if name or kind in PLACE_KEYS else None
    return compile_read(word) if compile_reader is None else compile_reader(name)


def each(values: Values, make: Callable[[str], T | Absence]) -> list[T] | Absence | Ambiguity:
    """Return what is made of each of the request's values, without repetition.

    If one of them is empty, an upstream may use that one, so the value counts as missing.

    Args:
        values: as `compile_read` finds them.
        make: converts one value, or returns the replacement for a missing one.
    """
    if isinstance(values, Ambiguity):
        return values
    made = [make(value) for value in (values if isinstance(values, list) else [values or ""])]
    for one in made:
        if one is REJECT or one is UNAUTHORIZED:
            return one
    kept = [one for one in made if not isinstance(one, Absence)]
    return list(dict.fromkeys(kept)) or SKIP


def _join(parts: Sequence[KeyFunction]) -> KeyFunction:
    if len(parts) == 1:
        (only,) = parts

        def single(request: RequestView) -> Key:
            text = only(request)
            if isinstance(text, str):
                return bound(text)
            return combined([text]) if isinstance(text, tuple) else text

        return single

    def joined(request: RequestView) -> Key:
        # One value each, unless it is a cookie's: joining them directly takes half the time of
        # combining them (bench: policies).
        texts: list[str] = []
        several: list[tuple[str, ...]] = []
        for part in parts:
            text = part(request)
            if isinstance(text, str):
                texts.append(text)
            elif isinstance(text, tuple):
                several += [(one,) for one in texts]
                several.append(text)
                texts = []
            else:
                return text
        if not several:
            return bound("|".join(texts))
        return combined([*several, *((one,) for one in texts)])

    return joined


def combined(parts: Sequence[Sequence[str]]) -> Key:
    """Return the identities of all combinations of the parts, if there are few."""
    if prod(map(len, parts)) > SEVERAL_MAX:
        return AMBIGUOUS
    keys = tuple([bound("|".join(texts)) for texts in product(*parts)])
    return keys[0] if len(keys) == 1 else keys


def bound(text: str) -> str:
    """Return an identity of at most `MAX_BYTES`: longer ones are cut and end in a hash."""
    if len(text) <= MAX_BYTES:
        return text
    digest = blake2b(text.encode("ascii"), digest_size=_HASH_BYTES).hexdigest()
    return f"{text[:_READABLE]}{_HASH_MARK}{digest}"


def identity(key: object) -> str:
    """Return the identity of a key that is named directly, without a request, one-to-one.

    Printable ASCII stays as it is, so that the identities above can be named; `%`, braces and
    unprintable characters are escaped, and long text ends in a hash.
    """
    if not isinstance(key, str):
        raise TypeError(f"a key is text, not {key!r}")
    if _is_plain(key):
        return key if len(key) <= MAX_BYTES else bound(key)
    return bound(_escape_others(key.encode("utf-8", "surrogatepass")))


def _escape(value: str) -> str:
    """Convert a value to printable ASCII without separators; one-to-one."""
    if _is_safe(value):
        return value
    # Bytes that were not UTF-8 arrive as lone surrogates; all of them must be accepted.
    return _escape_unsafe(value.encode("utf-8", "surrogatepass"))
