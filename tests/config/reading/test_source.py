"""Reading YAML: values of the core schema, places, bounds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.reading.nodes import find, plain, show_path
from gateway.config.reading.source import MAX_BYTES, read, resolve
from gateway.config.values.redaction import Secrets


def _no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def _read(text: str | bytes, **environ: str) -> tuple[Any, list[str]]:
    content = text if isinstance(text, bytes) else text.encode()
    root, problems = read("f", content, environ, _no_files, Secrets())
    return (plain(root) if root is not None else None), [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None),
        ("null", None),
        ("", None),
        ("true", True),
        ("False", False),
        ("12", 12),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("No", "No"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("-1e400", "-1e400"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    """Only null, booleans and numbers are more than text, and no number is too long to read."""
    resolved = resolve(text)

    assert resolved == value
    assert type(resolved) is type(value)


def test_quoted_text_stays_text() -> None:
    """Quotes mark text, with or without variables."""
    data, problems = _read("[\"12\", '12', \"${N}\", '${N}', ${N}]".replace(", ${N}]", "]"), N="5")

    assert (data, problems) == (["12", "12", "5", "5"], [])


def test_an_unquoted_variable_has_the_type_of_its_value() -> None:
    """After substitution a plain scalar is read as if it had been written so."""
    data, problems = _read("a: ${N}\nb: ${B:-true}\nc: ${E}\nd: x${N}", N="5", E="")

    assert (data, problems) == ({"a": 5, "b": True, "c": None, "d": "x5"}, [])


@pytest.mark.parametrize(
    "value", ["a: b", "[1, 2]", "&x y", "x\nroutes: {}", "!!int 5", "*a", "# c"]
)
def test_what_a_variable_holds_never_becomes_structure(value: str) -> None:
    """The value of a variable is one value, whatever characters are in it."""
    data, problems = _read("a: ${V}\nb: 1", V=value)

    assert (data, problems) == ({"a": value, "b": 1}, [])


def test_an_escaped_reference_is_text() -> None:
    """`$${` stands for `${`, a lone dollar for itself."""
    data, problems = _read('a: $${V}\nb: $5 $V $$\nc: "$$${V}"', V="x")

    assert (data, problems) == ({"a": "${V}", "b": "$5 $V $$", "c": "$${V}"}, [])


def test_merge_keys_take_in_what_is_not_said() -> None:
    """Own keys win, then the first of several mappings; the order of keys does not matter."""
    data, problems = _read(
        "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 9}\nd: {z: 8, <<: *b}"
    )

    assert problems == []
    assert data["c"] == {"x": 9, "y": 1, "z": 2}
    assert data["d"] == {"z": 8, "y": 2}


def test_a_merge_key_in_quotes_is_a_key() -> None:
    """As to every parser of YAML; its value may be anything."""
    assert _read('"<<": 1\n\'a\': {"<<": {b: 2}}') == ({"<<": 1, "a": {"<<": {"b": 2}}}, [])


@pytest.mark.parametrize(
    "bomb",
    [
        "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60)),
        "m0: &m0 {k: v}\n"
        + "".join(
            f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: *m{n - 1}}}\n" for n in range(1, 400)
        ),
        "big: &big {"
        + ",".join(f"k{n}: v" for n in range(5_000))
        + "}\n"
        + "list: ["
        + ",".join(["{<<: *big}"] * 50_000)
        + "]\n",
        "[" * 500_000,
        "{a: " * 200_000,
        "- " * 500_000,
        "? " * 500_000,
        "[" + "a," * 210_000 + "]",
    ],
    ids=["lists", "merges", "wide", "brackets", "braces", "dashes", "questions", "many"],
)
def test_bombs_are_a_problem_and_no_more(bomb: str) -> None:
    """A hostile file ends in one message, and memory stays near the size of the file."""
    tracemalloc.start()
    try:
        _, problems = _read(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(problems) == 1
    assert peak < 200 << 20


def test_large_files_are_refused() -> None:
    """A byte too many is a problem without a place."""
    data, problems = _read(b" " * (MAX_BYTES + 1))

    assert data is None
    assert problems == ["f: the file is larger than 1 MiB (split it into a folder of files)"]


def test_bytes_that_are_no_text_have_a_place() -> None:
    """Line and column of the first byte that is not UTF-8."""
    _, problems = _read(b"a: 1\nb: x\xff")

    assert problems == ["f:2:5: byte 0xff is not UTF-8 (save the file as UTF-8)"]


def test_byte_order_marks_and_line_ends_of_other_systems_are_fine() -> None:
    """A file saved elsewhere means the same."""
    assert _read(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n") == ({"a": 1, "b": 2}, [])


def test_every_value_knows_its_place() -> None:
    """Line and column of keys, values and list entries, counted in characters."""
    root, _ = read("f", "é: {a: [x, 'y']}\n".encode(), {}, _no_files, Secrets())
    assert root is not None

    found = find(root, ("é", "a", 1))

    assert (found.place.line, found.place.column) == (1, 13)
    assert show_path(found.path) == "é.a[1]"


@given(st.binary(max_size=200))
@example(b"\xc2\x85: 1")
@example(b"? - a\n  : b")
@example(b"%YAML 9.9\n---\na: 1")
def test_any_bytes_give_data_or_problems(content: bytes) -> None:
    """Reading never raises, and always returns data or problems."""
    root, problems = read("f", content, {}, _no_files, Secrets())

    assert root is not None or problems
    assert all(
        problem.message and (problem.line == 0) == (problem.column == 0) for problem in problems
    )


@given(st.text(st.sampled_from("ab:-{}[],&*!|>'\"%@`#? \n\t${}")))
def test_any_yaml_like_text_gives_data_or_problems(text: str) -> None:
    """So do strings of the characters that mean something in YAML."""
    root, problems = read("f", text.encode(), {"a": "b"}, _no_files, Secrets())

    assert root is not None or problems
