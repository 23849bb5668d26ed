"""What people write on their first day, and what they are told.

Each was written by somebody who had read the README and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from gateway.config.check import check_text
from gateway.errors import ConfigError, Problem

UPSTREAM: Final = "upstream: http://127.0.0.1:9000"
THE_REST: Final = f"routes: {{/**: {{{UPSTREAM}}}}}\n"
PORT: Final = {"PORT": "8081", "AN_UNRELATED": "x"}


def said_of(text: str, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Return the problems of a configuration, or its warnings if it has none."""
    try:
        checked = check_text(text, environ=environ)
    except ConfigError as error:
        return list(error.problems)
    return list(checked.warnings)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("listen: ${PORT}\n", "${PORT}"),
        ("listen: ${PORT:-8080}\n", "${PORT:-8080}"),
        ("listen: ${OTHER:-8080}\n", "${OTHER:-8080}"),
        ("listen: ${ADDRESS:-8080}\n", "${ADDRESS:-8080}"),
        ('listen: { address: "${PORT}" }\n', "8081"),
        ("listen:\n  - address: ${PORT:-8080}\n", "${PORT:-8080}"),
        ("admin:\n  listen: ${PORT}\n", "${PORT}"),
        ("listeners:\n  - bind: ${PORT:-9000}\n    throttr: v5\n", "${PORT:-9000}"),
        ("listen: 8080\n", "8080"),
        ("listen: 0x1F90\n", "8080"),
    ],
)
def test_a_port_from_a_variable_is_a_port(text: str, shown: str) -> None:
    """It lacks a host; nothing is said of the colons and braces of the reference."""
    (problem,) = said_of(text + THE_REST, PORT)
    assert problem.message == f"{shown} is a port without a host"
    assert problem.hint == f"such as 127.0.0.1:{shown}, or :{shown} for every interface"


def test_the_suggested_listener_can_be_read() -> None:
    """`listen: :${PORT:-8080}` is every interface, at that port."""
    checked = check_text(f"listen: :${{PORT:-8080}}\n{THE_REST}", environ=PORT)
    assert [str(one) for one in checked.config.listen] == [":8081"]


@pytest.mark.parametrize(
    ("to", "message", "hint"),
    [
        ("https://$host$request_uri", "$host stands for nothing here", "write {host}"),
        ("$scheme://$host$uri", "$scheme stands for nothing here", "write {scheme}"),
        (
            "https://$HOST/x",
            "'https://$HOST/x' does not say clearly where it leads",
            "write ${HOST}",
        ),
    ],
)
def test_a_redirect_in_words_of_nginx(to: str, message: str, hint: str) -> None:
    """A variable of a request becomes a template, and one of the environment a reference."""
    (problem,) = said_of(f'routes: {{/a: {{redirect: "{to}"}}}}\n')
    assert (problem.message, problem.hint) == (message, hint)


@pytest.mark.parametrize(
    "answer",
    [
        'redirect: "https://${MISSING}/"',
        'redirect: { to: "https://${MISSING}/" }',
        'respond: "${MISSING}"',
        'respond: "${file:missing.html}"',
        'upstream: "${MISSING}"',
    ],
)
def test_what_could_not_be_read_is_not_missing(answer: str) -> None:
    """A route whose answer has a variable that is not set has one problem, and not two."""
    problems = said_of(f"routes: {{/a: {{{answer}}}}}\n")
    assert [one.message for one in problems] in (
        ["the variable MISSING is not set"],
        ["the file missing.html cannot be read"],
    )
