"""What other programs would understand is not taken for a value in silence."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.base.errors import ConfigError
from gateway.config.checking.check import check_text

ROUTES: Final = 'routes: {/**: {upstream: "http://127.0.0.1:9000"}}\n'


def said(text: str) -> str:
    """Problems, or warnings."""
    try:
        told = check_text(text).warnings
    except ConfigError as error:
        told = tuple(error.problems)
    return "\n".join(f"{one.message} | {one.hint}" for one in told)


@pytest.mark.parametrize("word", ["off", "Off", "OFF", "on"])
@pytest.mark.parametrize(
    "text",
    [
        "routes: {/**: {respond: WORD}}\n",
        "error_pages: {404: WORD}\n" + ROUTES,
        'routes: {/**: {upstream: "http://a", error_pages: {5xx: WORD}}}\n',
        'routes: {/**: {upstream: "http://a", upstream_host: WORD}}\n',
    ],
)
def test_a_switch_is_no_text(text: str, word: str) -> None:
    """`off` is not a page with the text off, nor a host of that name."""
    assert said(text.replace("WORD", word))


def test_a_switch_may_be_a_text_where_that_is_said() -> None:
    """The text itself can be written as text, or come from a variable or file."""
    check_text("routes: {/**: {respond: {body: off}}}\n")
    check_text('routes: {/**: {respond: "${V}"}}\n', environ={"V": "off"})


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("request_headers: {remove: 'X-*'}", "without quotes and patterns"),
        ("request_headers: {set: {'*': a}}", "without quotes and patterns"),
        ("rewrite: /a/$1", "a parameter of the route is written {name}"),
        ("host: off", "remove the host"),
        ("upstream_host: Target", "write target"),
        ("upstream_host: $host", "write ${host}"),
    ],
)
def test_words_of_other_programs_in_routes(text: str, hint: str) -> None:
    """Patterns and groups of regular expressions, and switches, are no names and no paths."""
    assert hint in said(f'routes: {{/**: {{upstream: "http://a", {text}}}}}\n')


@pytest.mark.parametrize(
    ("to", "hint"),
    [
        ("/new$request_uri", "write {path}"),
        ("https://a/$1", "a parameter of the route is written {name}"),
        ("https://a/?h=$host", "write {host}"),
        ("https://$host/", "write {host}"),
    ],
)
def test_variables_of_nginx_in_redirects(to: str, hint: str) -> None:
    """A redirect does not lead to a place with a dollar sign in it."""
    assert hint in said(f"routes: {{/**: {{redirect: '{to}'}}}}\n")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("$remote_addr", "did you mean {client_ip}?"),
        ("$http_x_team", "did you mean {header.x-team}?"),
        ("$TOKEN", "did you mean ${TOKEN}?"),
        ("%DOWNSTREAM_REMOTE_ADDRESS%", "known variables: {client_ip}"),
        ("%[src]", "known variables: {client_ip}"),
    ],
)
def test_variables_of_others_in_fields_are_a_warning(value: str, hint: str) -> None:
    """They may be meant, and are hardly."""
    text = (
        f'routes: {{/**: {{upstream: "http://a", request_headers: {{set: {{X-A: "{value}"}}}}}}}}'
    )

    assert f"{value} is sent as it is" in said(text)
    assert hint in said(text)


@pytest.mark.parametrize("value", ["$5", "100%", "a $b c", "{client_ip}", "%20"])
def test_other_fields_are_none(value: str) -> None:
    """A dollar or a percent sign alone has no meaning."""
    text = (
        f'routes: {{/**: {{upstream: "http://a", request_headers: {{set: {{X-A: "{value}"}}}}}}}}'
    )

    assert not said(text)


@pytest.mark.parametrize(
    "text",
    [
        "log: {output: ~/sluice.log}\n",
        "log: {output: $LOGS/sluice.log}\n",
        "listen: {address: ':443', tls: {cert: ~/cert.pem, key: /k}}\n",
        "listen: {address: ':443', tls: {cert: $CERTS/cert.pem, key: /k}}\n",
        "listen: 'unix:/run/$NAME/sluice.sock'\n",
        "upstreams: {a: 'unix:/run/$NAME/app.sock'}\n",
    ],
)
def test_paths_are_not_a_shells(text: str) -> None:
    """`~` and `$DIR` are not folders of that name."""
    assert said(text + ROUTES)


@pytest.mark.parametrize(
    "option",
    ["ssl_check_hostname=off", "ssl_check_hostname=disabled", "ssl_cert_reqs=NONE"],
)
def test_options_of_tls_say_what_they_seem_to(option: str) -> None:
    """What redis-py would take for true, or for nothing it knows, is a problem."""
    assert said(f"store: 'rediss://redis?{option}'\n{ROUTES}")


@pytest.mark.parametrize(
    "option", ["ssl_check_hostname=False", "ssl_check_hostname=no", "ssl_cert_reqs=required"]
)
def test_options_of_tls_that_are_known(option: str) -> None:
    """Its own spellings stay."""
    check_text(f"store: 'rediss://redis?{option}'\n{ROUTES}")


@pytest.mark.parametrize("host", ["a b", "a#b", "'a'", "$H", "127.1"])
def test_the_host_of_a_check_is_one(host: str) -> None:
    """As everywhere else."""
    health = f'health: {{path: /, host: "{host}"}}'

    assert said(f'upstreams: {{a: {{targets: "http://a", {health}}}}}\n{ROUTES}')
