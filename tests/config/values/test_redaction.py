"""Secrets never turn up in what is shown, whatever they are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.checking.check import Checked, Source, check
from gateway.config.explaining.explain import explain
from gateway.config.explaining.render import render
from gateway.config.values.redaction import Secrets, redact, redact_line

MARK: Final = "Zq7Xk"
"""Stands in every part of a secret, so that no part of it can be shown unseen."""

ROUTES: Final = "routes:\n  /**: {upstream: http://127.0.0.1:9000}\n"

passwords = st.lists(
    st.one_of(
        st.sampled_from([*" \t@:/?#[]{}%&=+\"'\\,;$|<>~^`*!-_.", "password=", "://", "${", "}"]),
        st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co")),
    ),
    max_size=5,
).map(lambda parts: MARK + "".join(part + MARK for part in parts))

PLACES: Final = (
    "store: URL\n" + ROUTES,
    "store: {url: URL, deadlin: 1s}\n" + ROUTES,
    "store: {URL: 1}\n" + ROUTES,
    "stroe: URL\n" + ROUTES,
    "listen: URL\n" + ROUTES,
    "domain: URL\n" + ROUTES,
    "trusted_proxies: [URL]\n" + ROUTES,
    "admin: URL\n" + ROUTES,
    "log: {output: URL, level: URL}\n" + ROUTES,
    "server: {max_body: URL, header_timeout: URL}\n" + ROUTES,
    "routes:\n  /**: {upstream: URL}\n",
    "routes:\n  /**: {upstream: URL, limit: URL, policies: URL}\n",
    "routes:\n  URL: {upstream: http://127.0.0.1:9000}\n",
    "routes:\n  - {path: URL, host: URL, methods: URL, upstream: http://a:1}\n",
    "store: URL URL\n" + ROUTES,
    "store: [URL\n" + ROUTES,
)
URLS: Final = (
    "redis://:{0}@redis:6379/0",
    "redis://user:{0}@redis:port",
    "redis://:{0}@",
    "http://user:{0}@host:80",
    "rediss://redis:6379/0?ssl_password={0}&ssl_unknown=1",
    "redis://:{0}@/0?x=1",
)


def shown_by(check_it: Callable[[], Checked]) -> str:
    """Everything that a user may see of a configuration, whatever is wrong with it."""
    try:
        checked = check_it()
    except ConfigError as error:
        return f"{render(error.problems)}\n{error}"
    config = checked.config
    lines = [render(checked.warnings, "warning"), *explain(config), config.store.redacted_url]
    return checked.secrets.hide("\n".join(lines)) + repr(config.store)


@example("store: URL URL\n" + ROUTES, "redis://:{0}@redis:6379/0", f"{MARK}${{{MARK}}}{MARK}")
@settings(max_examples=400)
@given(st.sampled_from(PLACES), st.sampled_from(URLS), passwords)
def test_no_password_of_a_url_is_shown(text: str, url: str, password: str) -> None:
    """Wherever a URL with a password is written, nothing that is shown has any part of it."""
    written = password.replace("${", "$${")
    quoted = json.dumps(url.format(written), ensure_ascii=False)

    shown = shown_by(
        lambda: check([Source("f", text.replace("URL", quoted).encode())], {}, lambda _: "")
    )

    assert MARK not in shown


@pytest.mark.parametrize("reference", ["${PASSWORD}", "${file:password}"])
@settings(max_examples=400)
@given(st.sampled_from(PLACES), st.sampled_from(URLS), passwords)
def test_no_password_from_elsewhere_is_shown(
    reference: str, text: str, url: str, password: str
) -> None:
    """The same for a password that a variable or a file holds."""
    source = Source("f", text.replace("URL", json.dumps(url.format(reference))).encode())

    shown = shown_by(lambda: check([source], {"PASSWORD": password}, lambda _: password))

    assert MARK not in shown


@given(passwords)
def test_no_secret_is_shown_in_an_explanation(secret: str) -> None:
    """A header that a route matches may be a secret; `--explain` does not show it."""
    text = 'routes:\n  /**: {upstream: "http://a:1", headers: {X-Token: "${file:token}"}}\n'

    shown = shown_by(lambda: check([Source("f", text.encode())], {}, lambda _: secret))

    assert "x-token" in shown
    assert MARK not in shown


@pytest.mark.parametrize("reference", ["${PASSWORD}", "${file:password}"])
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1))
def test_any_password_is_taken_as_it_is(reference: str, password: str) -> None:
    """What a variable or a file holds needs no escaping to be the password of a URL."""
    text = f'store: "redis://:{reference}@redis:6380/2"\n{ROUTES}'

    config = check([Source("f", text.encode())], {"PASSWORD": password}, lambda _: password).config

    parts = urlsplit(config.store.url)
    assert unquote(parts.password or "") == password
    assert (parts.hostname, parts.port, parts.path) == ("redis", 6380, "/2")
    assert config.store.redacted_url == "redis://***@redis:6380/2"


def test_a_whole_url_from_a_variable_is_a_url() -> None:
    """Only what stands for the password is escaped."""
    source = Source("f", f"store: ${{URL}}\n{ROUTES}".encode())

    config = check([source], {"URL": "redis://:a%40b@redis"}, lambda _: "").config

    assert config.store.url == "redis://:a%40b@redis"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:a b@c@redis/0", "redis://***@redis/0"),
        ("redis://:forgotten", "redis://:***"),
        ("redis://redis:port", "redis://redis:***"),
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("http://web:port", "http://web:port"),
        ("rediss://redis?ssl_password=a b@c", "rediss://***"),
        ("rediss://redis?ssl%5Fpassword=a", "rediss://redis?ssl%5Fpassword=***"),
        ("127.0.0.1:80", "127.0.0.1:80"),
    ],
)
def test_redacted(text: str, shown: str) -> None:
    """What stays of a URL is what is no password for sure."""
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("store: redis://:a b@redis # x", "store: redis://****@redis # x"),
        ("store: redis://:${P:-x}@redis", "store: redis://*${P:-*}@redis"),
        ("store: redis://redis/0 # mail", "store: redis://redis/0 # mail"),
        ("store: redis://:a b", "store: redis://:***"),
        ("upstream: http://a:1", "upstream: http://a:1"),
        ("set: {Authorization: Bearer abc, X: 1}", "set: {Authorization: **********, X: 1}"),
        ('X-API-Key: "k, 1"  # mine', "X-API-Key: ******  # mine"),
        ("X-Token: ${TOK}", "X-Token: ${TOK}"),
        ('headers: {X-API-Key: "*"}', 'headers: {X-API-Key: "*"}'),
        ("limit: 10/s per cookie:session+ip", "limit: 10/s per cookie:session+ip"),
        ("algorithm: token_bucket", "algorithm: token_bucket"),
    ],
)
def test_redacted_lines(line: str, shown: str) -> None:
    """Stars keep the columns; references are no secrets, but their defaults may be."""
    assert redact_line(line) == shown
    assert len(shown) == len(line)


def test_short_secrets_do_not_eat_sentences() -> None:
    """A secret of few letters is not searched for in words."""
    secrets = Secrets()
    secrets.add("a")
    secrets.add("hunter2")

    assert secrets.hide("a host, not hunter2") == "a host, not ***"
