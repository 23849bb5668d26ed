"""Configurations of Envoy's own rate limit service, and what becomes of them here.

One file for each case: what is read, dashes, what comes of it, and, behind more dashes, the notes;
or the problems alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.checking.check import Source, check_text
from gateway.config.explaining.render import render
from gateway.importing.envoy_ratelimit import import_envoy_ratelimit

CASES: Final = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
DASHES: Final = "\n-----\n"


def result(*texts: str) -> str:
    """What comes of files named one.yaml, two.yaml and so on."""
    names = ("one.yaml", "two.yaml")
    sources = [Source(name, text.encode()) for name, text in zip(names, texts, strict=False)]
    try:
        imported = import_envoy_ratelimit(sources)
    except ConfigError as error:
        return render(error.problems) + "\n"
    notes = render(imported.notes, "note")
    return imported.text + (f"{DASHES[1:]}{notes}\n" if notes else "")


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_what_comes_of_it_is_as_written(path: Path) -> None:
    """A file of the service gives exactly the configuration and notes, or problems, of its case."""
    text, _, expected = path.read_text().partition(DASHES)

    assert result(text + "\n") == expected


def test_there_are_cases() -> None:
    """The cases are found: an empty folder would pass everything."""
    assert len(CASES) >= 10


def test_files_of_one_domain_are_joined() -> None:
    """Two files of a domain are joined; a duplicate is a problem, shown with both places."""
    one = (
        "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 5}}]\n"
    )
    two = one.replace("key: a", "key: b")

    joined = result(one, two)

    assert joined.count("shop:") == 1
    assert joined.index('{ a: "*" }') < joined.index('{ b: "*" }')
    assert "two.yaml:2:21: 'a' without a value is given twice" in result(one, one)
    assert "the first is in line 2 of one.yaml" in result(one, one)


def test_domains_stand_side_by_side() -> None:
    """Files of several domains are domains of one listener."""
    one = "domain: a\ndescriptors: [{key: k}]\n"
    two = "domain: b\ndescriptors: [{key: k}]\n"

    text = result(one, two)

    assert text.count("envoy_rls:") == 1
    assert text.index("        a:\n") < text.index("        b:\n")


# Halves of surrogate pairs are no characters, to a YAML parser as to Envoy's messages. Keys are not
# searched for variables, and one that looks as if it had some is a problem.
KEYS: Final = st.text(
    st.characters(exclude_characters="$", exclude_categories=["Cs"]), min_size=1, max_size=4
)
VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3),
    max_leaves=6,
)


class Quoted(yaml.SafeDumper):
    """Puts text in quotes: what is a number without them is not the same to all who read YAML."""


Quoted.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


@settings(max_examples=25)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
def test_metadata_is_read_here_as_it_is_there(metadata: dict[str, Any]) -> None:
    """Whatever is in it: text of any characters, numbers, lists in lists."""
    descriptor = {
        "key": "a",
        "metadata": metadata,
        "rate_limit": {"unit": "day", "requests_per_unit": 1},
    }
    text = yaml.dump({"domain": "shop", "descriptors": [descriptor]}, Dumper=Quoted)
    config = check_text(result(text)).config
    listener = config.listeners[0].envoy_rls
    assert listener is not None
    assert listener.domains["shop"][0].metadata == metadata
