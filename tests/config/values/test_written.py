"""Values are taken and shown as they were written; what references hold is literal, and secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.base.errors import ConfigError
from gateway.config.checking.check import Checked, Source, check, check_text
from gateway.config.explaining.explain import explain
from gateway.config.explaining.render import render
from gateway.config.explaining.schema import json_schema
from gateway.http.editing.template import renderer

ROUTES: Final = 'routes: {/**: {upstream: "http://127.0.0.1:9000"}}\n'
MARK: Final = "Zq7Xk"

NUMBERS: Final = ("1.10", "0660", "1e3", "0x1F", "+7", "1.", ".5", "0o17", "-0", "1E-3", "00")
TEXT_PLACES: Final = (
    'routes: {/**: {upstream: "http://a", request_headers: {set: {X-Ver: VALUE}}}}\n',
    'routes: {/**: {upstream: "http://a", response_headers: {add: {X-Ver: VALUE}}}}\n',
    'routes: {/**: {upstream: "http://a", headers: {X-Ver: VALUE}}}\n',
    'routes: {/**: {upstream: "http://a", name: VALUE}}\n',
    "routes: {/**: {respond: {body: VALUE}}}\n",
    "error_pages: {404: {html: VALUE}}\n" + ROUTES,
)


def checked(
    text: str, environ: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> Checked:
    """A configuration with variables and files of secrets."""
    return check([Source("f.yaml", text.encode())], environ or {}, lambda path: (files or {})[path])


def said(
    text: str, environ: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> str:
    """All that is said of a configuration: problems, or warnings and the explanation."""
    try:
        done = checked(text, environ, files)
    except ConfigError as error:
        return f"{render(error.problems)}\n{error}"
    lines = done.secrets.hide("\n".join(explain(done.config)))
    return f"{render(done.warnings)}\n{lines}"


@pytest.mark.parametrize("place", TEXT_PLACES)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_hint_quotes_a_number_as_it_is_written(place: str, number: str) -> None:
    """`1.10` is not quoted as `1.1`, nor `0660` as 660: what is in the file is what is meant."""
    assert f'quote it: "{number}"' in said(place.replace("VALUE", number))


@pytest.mark.parametrize("number", ["1.10", "1e3", "0x1F"])
def test_a_message_quotes_a_number_as_it_is_written(number: str) -> None:
    """The value in the message can be found in the file."""
    assert f"the number {number} is not valid here" in said(f"log: {{level: {number}}}\n{ROUTES}")


def test_numbers_in_other_bases_are_numbers() -> None:
    """`0x10` and `0o20` are 16 wherever a whole number is wanted."""
    for number in ("16", "0x10", "0o20", "+16"):
        config = check_text(
            f"server: {{max_headers: {number}, max_body: {number}}}\n{ROUTES}"
        ).config
        assert (config.server.max_headers, config.server.max_body) == (16, 16)


@pytest.mark.parametrize(
    "place",
    [
        "server: {workers: 010}\n",
        "server: {max_body: 010}\n",
        "server: {max_connections: 010}\n",
        "ipv6_prefix: 010\n",
        "upstreams: {a: {targets: [{url: 'http://a', weight: 010}]}}\n",
        "store: {url: 'redis://a', share: 010}\n",
    ],
)
def test_a_number_with_two_meanings_is_a_problem(place: str) -> None:
    """`010` is ten to YAML 1.2 and eight to YAML 1.1, which many tools still read."""
    text = said(place + ROUTES)

    assert "010 is 10 in YAML 1.2, and 8 in YAML 1.1" in text
    assert "write 10, or 0o10 for the other" in text


@pytest.mark.parametrize("mode", ["0660", "660", "0o660", '"0660"', '"0o660"'])
def test_a_mode_is_octal_in_every_spelling(mode: str) -> None:
    """Digits of a mode are octal, with `0`, with `0o`, in quotes and without."""
    text = f'listen: {{address: "unix:/run/s.sock", mode: {mode}}}\n{ROUTES}'

    assert check_text(text).config.listen[0].mode == 0o660


@pytest.mark.parametrize(
    "text",
    [
        "admin:\n" + ROUTES,
        "server: {max_connections_per_ip: }\n" + ROUTES,
        "server: {min_rate: ~}\n" + ROUTES,
        "server:\n  max_body: ${EMPTY}\n" + ROUTES,
        "routes:\n  /: {upstream: 'http://a', limit: 1/s, queue: null}\n",
        "upstreams: {a: {targets: 'http://a', eject: , breaker: 50%}}\n" + ROUTES,
        "listen: {address: ':80', tls: {cert: a, key: b, client_certificates: }}\n" + ROUTES,
    ],
)
def test_a_key_without_a_value_is_a_problem(text: str) -> None:
    """A forgotten value, or a variable that is empty, does not switch anything off in silence."""
    assert "has no value" in said(text, {"EMPTY": ""}) or "is empty" in said(text, {"EMPTY": ""})


values = st.lists(
    st.sampled_from([*"{}$%:@/?#&=+ \\'\"*~,;aZ09", "{method}", "{header.x}", "${X}", "{{", "é"]),
    min_size=1,
    max_size=8,
).map("".join)


@example("abc{method}def")
@example("a{b}c")
@example("007")
@example("1e3")
@example("{")
@given(values.filter(lambda text: text == text.strip()))
def test_what_a_reference_holds_is_literal(value: str) -> None:
    """In a header field it is sent as it is, whatever is in it, by variable or file."""
    for reference in ("${V}", "${file:v}"):
        text = (
            'routes: {/**: {upstream: "http://a", request_headers: {set: {X-A: "REF", '
            'X-B: "a{{b{method}:REF"}}}}\n'
        ).replace("REF", reference)
        edits = checked(text, {"V": value}, {"v": value}).config.routes[0].request_headers.set

        assert renderer(edits["X-A"], {}) == value.encode()
        made = renderer(edits["X-B"], {"method": lambda _: "GET"})
        assert callable(made)
        assert made(None) == f"a{{bGET:{value}".encode()


@pytest.mark.parametrize("value", ["0123", "1e3", "0x1F", "-5", "1.50"])
def test_an_unquoted_reference_may_look_like_a_number(value: str) -> None:
    """A token of digits is a header's value, a condition and a passphrase as it is."""
    text = (
        "routes:\n  /**:\n    upstream: http://a\n    headers:\n      X-C: ${V}\n"
        "    request_headers:\n      set:\n        X-A: ${V}\n"
    )

    route = checked(text, {"V": value}).config.routes[0]

    assert route.request_headers.set["X-A"].literals == (value,)
    assert route.headers == {"x-c": value}


def test_braces_from_elsewhere_do_not_choose_where_a_redirect_leads() -> None:
    """In a redirect they are escaped: what a variable holds is no variable of the template."""
    config = checked(
        "routes: {/a: {redirect: 'https://x/${P}?a={path}'}}\n", {"P": "{host}"}
    ).config

    assert config.routes[0].redirect is not None
    assert config.routes[0].redirect.to == "https://x/%7Bhost%7D?a={path}"


@pytest.mark.parametrize("reference", ["${V}", "${file:v}"])
@pytest.mark.parametrize(
    "template",
    [
        'routes: {/**: {upstream: "http://a", request_headers: {set: {X-Secret: "REF"}}}}\n',
        'routes: {/**: {upstream: "http://a", response_headers: {add: {X-Plain: "a REF b"}}}}\n',
        'routes: {/**: {upstream: "http://a", headers: {X-Key: "REF"}}}\n',
        'routes: {/**: {upstream: "http://a", request_headers: {set: {X-S: "{REF}"}}}}\n',
        'routes: {/**: {upstream: "http://a", request_headers: {set: {"X S": "REF"}}}}\n',
        "routes:\n  /**: {upstream: 'http://a'}\nstore: redis://u:REF@redis\n",
        "routes:\n  /**: {upstream: 'http://a'}\nstore: redis://u:REF@redis/x\n",
    ],
)
@given(st.lists(st.sampled_from(["{", "}", "{method}", "@", "a b", "\n", "\x00", "1"]), max_size=4))
def test_no_part_of_what_a_reference_holds_is_shown(
    template: str, reference: str, parts: list[str]
) -> None:
    """Neither in problems nor in explanations, in header fields and as a password."""
    value = MARK + "".join(f"{part}{MARK}" for part in parts)

    assert MARK not in said(template.replace("REF", reference), {"V": value}, {"v": value})


@pytest.mark.parametrize("name", ["Authorization", "Cookie", "X-API-Key", "X-Auth-Token"])
def test_credentials_that_are_written_out_are_not_explained(name: str) -> None:
    """A field with credentials is not shown, even without a reference."""
    text = (
        f'routes: {{/**: {{upstream: "http://a", request_headers: {{set: {{{name}: abcdef}}}}}}}}\n'
    )

    assert f"{name}: ***" in said(text)
    assert "abcdef" not in said(text)


def test_credentials_are_not_in_the_line_that_a_problem_shows() -> None:
    """Next to a mistake, credentials are blanked out; the text around them is not."""
    text = (
        "routes: {/**: {upstream: 'http://a', request_headers: "
        "{set: {Authorization: Bearer abcdef, X-Auth-Token: 'abc def', X-V: 1.10}}}}\n"
    )

    shown = said(text)

    assert "abc" not in shown
    assert 'quote it: "1.10"' in shown
    assert "Authorization: *************, X-Auth-Token: *********, X-V: 1.10" in shown


def test_words_are_not_secrets() -> None:
    """A user called `throttlex`, or a password `policy`, masks no word but where it came from."""
    text = (
        "store: mysql://throttlex:${P}@database/throttlex\n"
        "routes:\n  /**: {upstream: http://a, limit: 5/s}\n"
    )

    explained = said(text, {"P": "policy"})

    assert "***" not in explained
    assert "MySQL or MariaDB at database:3306, database throttlex" in explained
    assert "limited by policy /**" in explained


def test_words_are_not_masked_in_problems_of_others() -> None:
    """A password is only masked in messages about its own value."""
    text = "store: redis://u:unknown@redis\nrouts: {}\n" + ROUTES

    assert "unknown key 'routs'" in said(text)


@pytest.mark.parametrize("reference", ["${U}", "${file:u}"])
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1))
def test_any_user_is_taken_as_it_is(reference: str, user: str) -> None:
    """What a variable or a file holds needs no escaping to be the user of a URL."""
    text = f'store: "redis://{reference}:${{P}}@redis:6380/2"\n{ROUTES}'

    config = checked(text, {"U": user, "P": "a@b"}, {"u": user}).config

    parts = urlsplit(config.store.url)
    assert (unquote(parts.username or ""), unquote(parts.password or "")) == (user, "a@b")
    assert (parts.hostname, parts.port, parts.path) == ("redis", 6380, "/2")


@pytest.mark.parametrize(
    ("holds", "user", "password"),
    [("svc@corp", "svc@corp", None), ("u:p@ss", "u", "p@ss"), ("u:p%40ss", "u", "p@ss")],
)
def test_a_variable_may_hold_all_that_lets_in(holds: str, user: str, password: str | None) -> None:
    """Alone before the @ it is a user, or a user and a password."""
    config = checked(f'store: "redis://${{L}}@redis"\n{ROUTES}', {"L": holds}).config

    parts = urlsplit(config.store.url)
    assert unquote(parts.username or "") == user
    assert (unquote(parts.password) if parts.password else None) == password


@pytest.mark.parametrize(
    "text",
    [
        'store: "redis://:${V}@redis"\n' + ROUTES,
        'store: "redis://${V}"\n' + ROUTES,
        'routes: {/**: {upstream: "http://a", request_headers: {set: {X-A: "${V}"}}}}\n',
        "domain: ${V:-x}\n" + ROUTES,
    ],
)
def test_a_variable_that_is_not_utf8_is_a_problem(text: str) -> None:
    """With the place of the reference; and it is never suggested for another name."""
    assert "the variable V is not UTF-8" in said(text, {"V": "caf\udce9"})
    assert "did you mean" not in said("domain: ${VARIABL}\n" + ROUTES, {"VARIABLE\udce9": "x"})


def test_extensions_hold_anchors() -> None:
    """Keys at the top that begin with x- hold what is repeated elsewhere, and nothing else."""
    text = (
        "x-limits: &limits {limit: 7/s, if_missing: }\n"
        "x-hosts: [&web http://web:8080, {a: 1}]\n"
        "routes:\n  /a: {upstream: *web, limit: 5/s}\n  /b: {upstream: *web}\n"
    )

    config = check_text(text).config

    assert [route.upstream for route in config.routes] == ["http://web:8080"] * 2


def test_files_have_extensions_of_their_own() -> None:
    """Two files of a folder may use the same name: each holds the anchors of its file."""
    files = [
        Source("a.yaml", b"x-common: &c 5/s\nroutes: {/a: {upstream: 'http://a', limit: *c}}\n"),
        Source("b.yaml", b"x-common: &c 7/s\nroutes: {/b: {upstream: 'http://a', limit: *c}}\n"),
    ]

    config = check(files, {}, str).config

    assert [line.text for name in ("/a", "/b") for line in config.policies[name].limits] == [
        "5/s",
        "7/s",
    ]


@pytest.mark.parametrize("name", ["X-limits", "x_limits", "xlimits"])
def test_only_what_begins_so_is_an_extension(name: str) -> None:
    """Another spelling is an unknown key, and so is one further in."""
    assert f"unknown key '{name}'" in said(f"{name}: {{}}\n{ROUTES}")
    assert "unknown key 'x-a'" in said(f"server: {{x-a: 1}}\n{ROUTES}")


def test_the_schema_allows_extensions() -> None:
    """Editors do not complain of them either, and do of anything else."""
    validator = Draft202012Validator(json_schema())
    routes = {"routes": {"/**": {"upstream": "http://a"}}}

    assert validator.is_valid({"x-limits": {"a": [1, None]}, **routes})
    assert not validator.is_valid({"xlimits": {}, **routes})
