"""What people write on their first day, and what they are told.

Each was written by somebody who had read the README and no more.
"""

from __future__ import annotations

from typing import Final

import pytest

from gateway.config.checking.check import check_text
from gateway.config.explaining.explain import explain
from tests.config.said import said_of

UPSTREAM: Final = "upstream: http://127.0.0.1:9000"
THE_REST: Final = f"routes: {{/**: {{{UPSTREAM}}}}}\n"
PORT: Final = {"PORT": "8081", "AN_UNRELATED": "x"}


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
    """It lacks a host; the message does not mention the colons and braces of the reference."""
    (problem,) = said_of(text + THE_REST, PORT)
    assert problem.message == f"{shown} is a port without a host"
    assert problem.hint == f"for example 127.0.0.1:{shown}, or :{shown} for all interfaces"


def test_the_suggested_listener_can_be_read() -> None:
    """`listen: :${PORT:-8080}` is every interface, at that port."""
    checked = check_text(f"listen: :${{PORT:-8080}}\n{THE_REST}", environ=PORT)
    assert [str(one) for one in checked.config.listen] == [":8081"]


@pytest.mark.parametrize(
    ("to", "message", "hint"),
    [
        ("https://$host$request_uri", "unknown variable $host", "write {host}"),
        ("$scheme://$host$uri", "unknown variable $scheme", "write {scheme}"),
        (
            "https://$HOST/x",
            "'https://$HOST/x' does not clearly say where it leads",
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


HINTS: Final = [
    (
        "limit: { rate: 5, per: ip }",
        "a limit is one line, for example 10/s burst 20 per header:X-API-Key",
    ),
    ("limit: '5/s per header[X-API-Key]'", "did you mean 'header:X-API-Key'?"),
    ("limit: 5/s per $http_x_api_key", "did you mean 'header:x-api-key'?"),
    ("limit: 5/s per $cookie_session_id", "did you mean 'cookie:session_id'?"),
    ("limit: 5/s per $arg_key", "did you mean 'query:key'?"),
    ("limit: 5/s per $binary_remote_addr", "did you mean 'ip'?"),
    ("limit: 5/s per $host", "did you mean 'host'?"),
    ("headers: none", "this key is a condition on requests; in a policy, write headers: none"),
    ("headers: 5", 'for example headers: {X-Beta: "*"}'),
    (
        "nodelay: true",
        "remove it: without a queue, requests over the limit are refused immediately",
    ),
    ("delay: 2s", "it is called queue here"),
    ("requests: 5", "it is part of the limit, for example limit: 10/s or 100/5m"),
    ("request_headers: { X-Team: blue }", "write set: {X-Team: ...}, or add"),
    ("response_headers: { add: [X-A: b] }", "for example add: {X-Team: blue}"),
    ("limit: 5/s\n    queue: { size: 5, max_wait: 2s }", "it is called max here"),
    ("limit: 5/s\n    queue: { timeout: 2s, max_wait: 2s }", "it is called max_wait here"),
    (
        "allow_ips: [10.0.0.0/8]",
        "it is called allow here",
    ),
    (
        "limit: 5/s\n    exempt: [10.0.0.0/8]",
        "it is called except here",
    ),
]


@pytest.mark.parametrize(("line", "hint"), HINTS)
def test_a_route_in_other_words(line: str, hint: str) -> None:
    """The hint is what to write here for it."""
    (problem,) = said_of(f"routes:\n  /a:\n    {UPSTREAM}\n    {line}\n")
    assert problem.hint == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("metrics: true\n" + THE_REST, "it is called admin here"),
        ("log: { file: ./a.log }\n" + THE_REST, "it is called output here"),
        ("log: { loglevel: debug }\n" + THE_REST, "it is called level here"),
        ("routes: {/a: {redirect: {url: https://a.test, to: /b}}}\n", "it is called to here"),
        ("routes: {/a: {respond: {code: 403}}}\n", "it is called status here"),
        ("routes: {/a: {to: 'http://a.test'}}\n", "it is called upstream here"),
        ("routes: {/a: {upstream: pay}}\n", "write its URL, for example http://127.0.0.1:9000"),
        (
            "upstreams: {a: {targets: 'http://a.test', health: {path: /, interval: 5s}}}\n"
            + THE_REST,
            "it is called every here",
        ),
        ("", "for example routes: {/**: {upstream: http://127.0.0.1:9000}}"),
    ],
)
def test_a_file_in_other_words(text: str, hint: str) -> None:
    """The hint is what to write here for it."""
    assert hint in [one.hint for one in said_of(text)]


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("json", "problem"),
        ("HTML", "problem (error_pages can"),
        ("plain", "text"),
        ("empty", "none"),
    ],
)
def test_the_name_of_a_form_as_a_body_is_warned_of(body: str, meant: str) -> None:
    """`body: json` would send these four letters."""
    (warning,) = said_of(
        f"routes: {{/a: {{{UPSTREAM}, limit: 5/s, on_limit: {{body: {body}}}}}}}\n"
    )
    assert warning.message == f"the body of refusals is the literal text {body!r}"
    assert warning.hint.startswith(f"did you mean {meant}")


@pytest.mark.parametrize("body", ["problem", "text", "none", "throttlex", "Slow down"])
def test_a_body_that_is_meant_is_not_warned_of(body: str) -> None:
    """The forms that there are, and any other text."""
    assert not said_of(f"routes: {{/a: {{{UPSTREAM}, limit: 5/s, on_limit: {{body: {body}}}}}}}\n")


def test_the_connections_of_one_address_are_explained_by_themselves() -> None:
    """The sentence needs no other before it, which is only there with `max_connections`."""
    checked = check_text("server: { max_connections_per_ip: 5 }\n" + THE_REST)
    sentences = explain(checked.config)
    assert "One address may have 5 connections open; trusted proxies are exempt." in sentences
