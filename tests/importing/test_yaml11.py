"""Single values as Go's yaml.v2 reads them."""

from __future__ import annotations

import pytest

from gateway.config.reading.source import read
from gateway.config.values.redaction import Secrets
from gateway.importing.yaml11 import plain_of


def _no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("010", 8), ("0o10", 8), ("0x1f", 31), ("0b101", 5), ("1_000", 1_000), ("-0x10", -16)),
        *(("+7", 7), ("08", 8.0), ("1e3", 1_000.0), (".5", 0.5), ("_1", "_1"), ("1.2.3", "1.2.3")),
        *(("yes", True), ("Off", False), ("y", True), ("N", False), ("true", True), ("~", None)),
        *(("'yes'", "yes"), ('"010"', "010"), ("yEs", "yEs"), ("1" * 41, "1" * 41)),
    ],
)
def test_values_are_those_of_yaml_1_1_with_numbers_of_go(written: str, value: object) -> None:
    """Quoted ones are text."""
    root, problems = read("f", f"a: [{written}]\n".encode(), {}, _no_files, Secrets())
    assert not problems
    assert root is not None
    found = plain_of(root)["a"][0]
    assert found == value
    assert type(found) is type(value)
