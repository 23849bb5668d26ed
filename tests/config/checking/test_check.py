"""Whatever is in a file, checking it ends in a configuration or in problems with places."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.checking.check import check_text
from gateway.config.explaining.explain import explain
from gateway.config.explaining.render import render

GOLDEN: Final = sorted((Path(__file__).parents[1] / "golden").glob("*.yaml"))
TEXTS: Final = [path.read_text().rpartition("\n-----\n")[0] + "\n" for path in GOLDEN]


def _check(text: str) -> None:
    try:
        checked = check_text(text, environ={"A": "1"})
    except ConfigError as error:
        shown = render(error.problems)
        assert shown
        lines = text.splitlines()
        for problem in error.problems:
            assert 0 <= problem.line <= len(lines) + 1
            assert problem.message
    else:
        assert explain(checked.config)


@given(st.data())
def test_files_with_typing_errors_are_checked(data: st.DataObject) -> None:
    """A piece left out, doubled, or replaced by characters that mean something in YAML."""
    text = data.draw(st.sampled_from(TEXTS))
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(begin + 12, len(text))))
    piece = data.draw(
        st.just("")
        | st.just(text[begin:end] * 2)
        | st.text(st.sampled_from("a1/:-{}[]*&!'\"%@#? \n\t${},é"), max_size=6)
    )

    _check(text[:begin] + piece + text[end:])


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["off", "5s", "10/s", "http://a:1", "/a", "1KiB", "a", "", "[::1]:8", "${A}"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["url", "max_wait", "limit", "path", "upstream", "targets", "x", "/a"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
_FIELDS: Final = [
    *("listen", "store", "domain", "trusted_proxies", "key_secret", "ipv6_prefix", "defaults"),
    *("upstreams", "policies", "routes", "server", "admin", "ready", "log"),
]


@given(st.dictionaries(st.sampled_from(_FIELDS), _values))
def test_values_of_any_shape_are_checked(config: dict[str, object]) -> None:
    """Lists for text, mappings for numbers, nothing for anything."""
    _check(repr(config).replace("None", "null"))


@given(st.dictionaries(st.text(st.sampled_from("/a*{}.%:- GET#?é\\1"), max_size=12), st.just(1)))
def test_patterns_of_any_text_are_checked(patterns: dict[str, int]) -> None:
    """Every text is a pattern that routing understands, or a problem; equal ones are found."""
    routes = "".join(
        f"  ? {pattern!r}\n  : {{upstream: http://a:1}}\n" for pattern in patterns if pattern
    )

    _check(f"routes:\n{routes}" if routes else "routes: []")
