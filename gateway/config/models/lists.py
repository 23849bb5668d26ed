"""Named lists of addresses or values, and the places that refer to them."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Final

from pydantic import (
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from gateway.base.errors import LimitSyntaxError
from gateway.config.values.address import AddressError, parse_network
from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.places import FieldText, FilePath
from gateway.config.values.types import ListOf, describe, problem
from gateway.limits.cursor import Cursor
from gateway.limits.key_words import CALLER_KEYS, PLACE_KEYS, PLAIN_KEYS, read_keys
from gateway.routing.methods import METHODS
from gateway.routing.places import EXAMPLES, PLACES, read_place
from gateway.routing.value_set import MAX_VALUE

PREFLIGHT: Final = "preflight"
"""The word for requests by which browsers ask whether others may be made (CORS)."""
LIST_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
NAME_EXAMPLE: Final = "use letters, digits, _ and -, for example office"
_LISTED: Final = "use ip, header:NAME, cookie:NAME, query:NAME, client_cert, country or asn"
_LOOKS_LIKE_NETWORK: Final = re.compile(r"[0-9].*|.*[.:/].*")


def _read_member(value: object) -> IPv4Network | IPv6Network | str:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if not isinstance(value, str):
        message = f"found {describe(value)}, a network or the name of a list was expected"
        raise problem(message, "for example 10.0.0.0/8, or office")
    text = value.strip()
    if LIST_NAME.fullmatch(text):
        return text
    try:
        return parse_network(text)
    except AddressError as error:
        hint = error.hint
        if not _LOOKS_LIKE_NETWORK.fullmatch(text):
            hint = "for example 10.0.0.0/8, or the name of a list under lists"
        raise problem(error.message, hint) from None


Member = Annotated[
    IPv4Network | IPv6Network | str,
    PlainValidator(_read_member),
    WithJsonSchema({"type": "string", "examples": ["10.0.0.0/8", "office"]}),
]
"""A network, or the name of a list."""

Members = Annotated[tuple[Member, ...], ListOf]


def _read_word_of_list(value: object) -> str:
    word = read_word(value)
    if word.startswith("jwt:"):
        raise problem(f"{word!r} is nothing that clients could be listed by", _LISTED)
    return word


def read_key(value: object) -> str:
    """Read one key. Raises `problem`."""
    if not isinstance(value, str):
        raise problem(f"found {describe(value)}, a key was expected", "for example ip")
    line = Cursor(value.strip())
    try:
        words = read_keys(line)
        if line.position != len(line.text):
            raise line.error(line.position, "one key was expected", "for example header:X-API-Key")
    except LimitSyntaxError as error:
        raise problem(error.reason, error.hint, column=error.column) from None
    (word, *others) = words
    if others:
        raise problem("one key was expected", f"for example {word}")
    return word


def read_word(value: object) -> str:
    """Read the one key that something is found by. Raises `problem`."""
    word = read_key(value)
    is_other = word in PLAIN_KEYS and word != "ip"
    if is_other or word in CALLER_KEYS or word.partition(":")[0] in {"path", "json", "form"}:
        raise problem(f"{word!r} is nothing that clients could be listed by", _LISTED)
    return word


Word = Annotated[str, PlainValidator(_read_word_of_list), WithJsonSchema({"type": "string"})]


class ListConfig(Model):
    """Addresses, or values of a key, that policies and routes refer to by the list's name."""

    per: Word = Field(
        "ip",
        description="What is listed: ip, header:NAME, cookie:NAME, query:NAME, client_cert, "
        "country or asn.",
    )
    values: Annotated[tuple[FieldText, ...], ListOf] = Field(
        (), description="Networks, or values of the key."
    )
    file: FilePath | None = Field(
        None,
        description="A file with one of them on each line, up to a million; # begins a comment. It "
        "is read again when it changes.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_values(cls, data: object) -> object:
        return {"values": data} if isinstance(data, str | list | tuple) else data

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        per = info.data.get("per")
        for index, value in enumerate(values):
            if per in PLACE_KEYS:
                if read_place(per, value) is None:
                    raise problem(f"{value!r} is not {PLACES[per]}", EXAMPLES[per], under=(index,))
            elif per == "ip":
                try:
                    parse_network(value)
                except AddressError as error:
                    raise problem(error.message, error.hint, under=(index,)) from None
            elif not value or len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE:
                message = "a value has 1 to 65535 bytes"
                raise problem(message, "for example k-0815", under=(index,))
        return values

    @model_validator(mode="after")
    def _check_content(self) -> ListConfig:
        if not self.values and self.file is None:
            hint = "for example [192.0.2.0/24], or {file: office.txt}"
            raise problem("the list is empty", hint)
        return self


def check_list_names(lists: dict[str, ListConfig]) -> dict[str, ListConfig]:
    """Refuse names that mean something else where lists are named. Raises `problem`."""
    for name in lists:
        if not LIST_NAME.fullmatch(name):
            raise problem(f"{name!r} is not a valid name", NAME_EXAMPLE, under=(name, KEY))
        if name == PREFLIGHT or name in METHODS:
            message = f"{name!r} has a meaning of its own in exceptions"
            raise problem(message, "use another name", under=(name, KEY))
    return lists


def names_in(members: Any) -> list[tuple[int, str]]:
    """Return the names of lists among members, with their positions."""
    return [(index, one) for index, one in enumerate(members) if isinstance(one, str)]
