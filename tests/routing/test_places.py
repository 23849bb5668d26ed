"""Countries and autonomous systems: what databases and people write."""

from __future__ import annotations

import pytest

from gateway.routing.places import asn_of, country_of, read_place


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"country": {"iso_code": "DE"}}, "DE"),
        ({"country": {"iso_code": "DE"}, "country_code": "FR"}, "DE"),
        ({"country": "DE", "country_name": "Germany"}, "DE"),
        ({"country": "Germany", "country_code": "DE"}, "DE"),
        ({"registered_country": {"iso_code": "DE"}}, ""),
        ({"country": {"names": {"en": "Germany"}}}, ""),
        ({"country": {"iso_code": "de"}}, ""),
        ({"country": {"iso_code": 7}}, ""),
        ({"country": {"iso_code": "DEU"}}, ""),
        ({}, ""),
        (["DE"], ""),
        (None, ""),
    ],
)
def test_the_country_of_a_record(record: object, code: str) -> None:
    """As several makers write it; what is no code is none."""
    assert country_of(record) == code


@pytest.mark.parametrize(
    ("record", "number"),
    [
        ({"autonomous_system_number": 64496}, "64496"),
        ({"asn": "AS64496"}, "64496"),
        ({"asn": 4294967295}, "4294967295"),
        ({"autonomous_system_number": 0}, ""),
        ({"autonomous_system_number": 1 << 32}, ""),
        ({"autonomous_system_number": True}, ""),
        ({"asn": "NA"}, ""),
        ({"asn": None}, ""),
        (7, ""),
    ],
)
def test_the_autonomous_system_of_a_record(record: object, number: str) -> None:
    """As several makers write it."""
    assert asn_of(record) == number


@pytest.mark.parametrize(
    ("word", "text", "value"),
    [
        ("country", " de ", "DE"),
        ("country", "D1", None),
        ("country", "Germany", None),
        ("asn", "as064496", "64496"),
        ("asn", "64496", "64496"),
        ("asn", "0", None),
        ("asn", "4294967296", None),
        ("asn", "AS", None),
        ("asn", "-1", None),
    ],
)
def test_what_people_write(word: str, text: str, value: str | None) -> None:
    """In either case, with or without AS."""
    assert read_place(word, text) == value
