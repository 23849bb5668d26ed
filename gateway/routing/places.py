"""What a database says of a client's address: its country, and its autonomous system (ASN).

Only the values; `gateway.wiring.geoip` reads the databases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.routing.request_view import RequestView
from gateway.routing.values import Read, Values

PLACES: Final = {"country": "the code of a country", "asn": "the number of an autonomous system"}
"""What the values of each key are."""
EXAMPLES: Final = {"country": "for example DE (ISO 3166-1)", "asn": "for example AS64496"}

MAX_ASN: Final = (1 << 32) - 1
_is_country: Final = re.compile(r"[A-Z]{2}").fullmatch
_is_asn: Final = re.compile(r"(?:AS)?0*([0-9]{1,10})").fullmatch


class AddressPlaces:
    """Countries or autonomous systems by address.

    Attributes:
        find: returns the value of an address; empty if there is none. Replaced when the database
            changes.
    """

    __slots__ = ("find",)

    def __init__(self) -> None:
        self.find: Callable[[str], str] = _nowhere


def _nowhere(_address: str) -> str:
    return ""


def compile_place(places: AddressPlaces) -> Read:
    """Return a function that reads the place of a request's client."""

    def read(request: RequestView) -> Values:
        return places.find(request.client)

    return read


def read_place(word: str, text: str) -> str | None:
    """Return the normal form of a value that is written by hand; None if it is not valid.

    Args:
        word: `country` or `asn`.
        text: such as `de`, `AS64496` or `64496`.
    """
    upper = text.strip().upper()
    if word == "country":
        return upper if _is_country(upper) else None
    found = _is_asn(upper)
    return _number(int(found[1])) if found else None


def country_of(record: object) -> str:
    """Return the country in a record of a database; empty if it has none.

    MaxMind and DB-IP write `country: {iso_code: DE}`, others `country_code: DE` or `country: DE`.
    """
    if not isinstance(record, Mapping):
        return ""
    country: Any = record.get("country")
    if isinstance(country, Mapping):
        country = country.get("iso_code")
    for value in (country, record.get("country_code")):
        if isinstance(value, str) and _is_country(value):
            return value
    return ""


def asn_of(record: object) -> str:
    """Return the number of the autonomous system in a record of a database; empty if it has none.

    MaxMind and DB-IP write `autonomous_system_number: 64496`, others `asn: AS64496`.
    """
    if not isinstance(record, Mapping):
        return ""
    for name in ("autonomous_system_number", "asn"):
        value: Any = record.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return _number(value) or ""
        if isinstance(value, str):
            return read_place("asn", value) or ""
    return ""


def _number(value: int) -> str | None:
    # 0 is reserved, and stands for what belongs to no system (RFC 7607).
    return str(value) if 0 < value <= MAX_ASN else None
