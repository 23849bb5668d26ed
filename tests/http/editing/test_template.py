"""Templates of header values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.editing.fields import FieldEdit
from gateway.http.editing.template import (
    HEADER,
    VARIABLES,
    TemplateError,
    parse_template,
    renderer,
)
from gateway.proxy.changes import GETTERS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _fill(text: str, values: Mapping[str, str]) -> bytes:
    template = parse_template(text, tuple(values))
    getters = {name: _constant(value) for name, value in values.items()}
    render = renderer(template, getters)
    return render if isinstance(render, bytes) else render(None)


def _constant(value: str) -> Callable[[None], str]:
    return lambda _: value


@given(values=st.fixed_dictionaries({"a": TEXT, "b": TEXT}), around=TEXT)
def test_nothing_that_comes_out_has_a_line_end(values: dict[str, str], around: str) -> None:
    """Whatever variables hold and whatever is written, a value is one line."""
    try:
        value = _fill(f"{around}{{a}}-{{b}}", values)
    except TemplateError:
        return

    assert not set(value) & set(b"\r\n\0")
    edit: FieldEdit[None] = FieldEdit((), [("X", value)])
    assert edit.apply(b"", None).count(b"\n") == 1


@given(text=TEXT.filter(lambda text: text.isprintable()))
def test_doubled_braces_are_plain_ones(text: str) -> None:
    """Any text can be written."""
    doubled = text.replace("{", "{{").replace("}", "}}")

    assert _fill(doubled, {"a": "!"}) == text.encode()


def test_values_are_taken_as_they_are() -> None:
    """What a variable holds is no template itself, is not decoded, and keeps its bytes."""
    raw = b"\xff{b}%0d%0a".decode("utf-8", "surrogateescape")

    assert _fill("<{a}>{{a}}", {"a": raw, "b": "x"}) == b"<\xff{b}%0d%0a>{a}"


@pytest.mark.parametrize("text", ["{", "}", "a{b", "{ a}", "{a}}", "{}", "{A}", "{header.}"])
def test_what_is_no_template_is_refused(text: str) -> None:
    """Braces that stand alone, unknown names and control characters."""
    with pytest.raises(TemplateError):
        parse_template(text, ("a", HEADER))


def test_every_variable_can_be_found() -> None:
    """Those that a configuration may name are those that requests are asked for."""
    assert set(GETTERS) == set(VARIABLES)


@given(
    names=st.lists(st.sampled_from(["X-A", "x_b", "X.C"]), max_size=3),
    block=st.lists(st.sampled_from(["X-A: 1", "x_a:2", "X-B: X-A: 3", "XxC: 4", "Y: 5"])),
)
def test_only_what_is_named_goes(names: list[str], block: list[str]) -> None:
    """Lines of these names, in any spelling, and no others; the rest keeps its order."""
    gone = {name.lower().replace("_", "-") for name in names}
    kept = [line for line in block if line.partition(":")[0].lower().replace("_", "-") not in gone]
    text = "".join(f"{line}\r\n" for line in block).encode()

    edit: FieldEdit[None] = FieldEdit(names, [])

    assert edit.apply(text, None) == "".join(f"{line}\r\n" for line in kept).encode()
