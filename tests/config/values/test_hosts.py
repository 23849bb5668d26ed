"""A host is a host in every place that takes one."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.base.errors import ConfigError
from gateway.config.checking.check import check_text
from gateway.config.values.hosts import parse_host

ROUTES: Final = 'routes: {/**: {upstream: "http://127.0.0.1:9000"}}\n'

PLACES: Final = {
    "redis": 'store: "redis://HOST:6379/0"\n' + ROUTES,
    "rediss": 'store: "rediss://:pw@HOST/0"\n' + ROUTES,
    "sentinel": 'store: "redis+sentinel://HOST,b/main"\n' + ROUTES,
    "second sentinel": 'store: "redis+sentinel://a:1,HOST:2/main"\n' + ROUTES,
    "cluster": 'store: "redis+cluster://HOST:7000"\n' + ROUTES,
    "mysql": 'store: "mysql://u:p@HOST/sluice"\n' + ROUTES,
    "throttr": 'store: "throttr+v5://HOST:9000?size=16"\n' + ROUTES,
    "ratio": 'store: "ratio://HOST"\n' + ROUTES,
    "smockron": 'store: "smockron://HOST"\n' + ROUTES,
    "migration": 'store: {url: "redis://a", migrate: {to: "redis://HOST/1"}}\n' + ROUTES,
    "listen": 'listen: "HOST:8080"\n' + ROUTES,
    "admin": 'admin: "HOST:9901"\n' + ROUTES,
    "bind": 'listeners: [{throttr: v5, bind: "HOST:9000"}]\n',
    "upstream": 'routes: {/**: {upstream: "http://HOST:80"}}\n',
    "https": 'routes: {/**: {upstream: "https://HOST"}}\n',
    "target": 'upstreams: {a: [{url: "http://HOST"}]}\nroutes: {/**: {upstream: a}}\n',
    "server_name": 'upstreams: {a: {targets: "https://a", tls: {server_name: "HOST"}}}\n'
    "routes: {/**: {upstream: a}}\n",
    "upstream_host": 'routes: {/**: {upstream: "http://a", upstream_host: "HOST"}}\n',
    "redirect": 'routes: {/**: {redirect: "https://HOST/new"}}\n',
    "host": 'routes: [{path: /, host: "HOST", upstream: "http://a"}]\n',
    "pattern": 'routes: {"HOST/x": {upstream: "http://a"}}\n',
}

UNFILLED: Final = ("$REDIS_HOST", "$(REDIS_HOST)", "%REDIS_HOST%", "$${REDIS_HOST}")


def hints(text: str) -> str:
    """What is said of a configuration."""
    with pytest.raises(ConfigError) as raised:
        check_text(text)
    return "\n".join(f"{one.message} | {one.hint}" for one in raised.value.problems)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("host", UNFILLED)
def test_a_variable_in_another_spelling_is_no_host(place: str, host: str) -> None:
    """A literal `$REDIS_HOST` is a problem wherever a host stands."""
    said = hints(PLACES[place].replace("HOST", host.replace("REDIS_HOST", "RH")))

    assert said
    # A { in a redirect or a pattern is a parameter, and said to be an unknown one.
    if place not in {"redirect", "pattern"} and host == "$REDIS_HOST":
        assert "write ${RH}" in said


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "host",
    [
        *("{{ .Values.redis }}", "{{redis}}", "a b", "a\\tb", "127.1", "0x7f.1", "010.0.0.1"),
        *("2130706433", "1.2.3.4.5", "a..b", "-a", "[::1]x", "[::g]", "a_-", "b\u00fccher.example"),
    ],
)
def test_what_is_no_host_is_a_problem(place: str, host: str) -> None:
    """Templates, blanks, odd spellings of addresses and broken names are no hosts."""
    assert hints(PLACES[place].replace("HOST", host))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("host", ["web", "web.internal", "a_b.c-d", "10.0.0.1", "xn--bcher-kva.de"])
def test_what_is_a_host_is_none(place: str, host: str) -> None:
    """Names and addresses are taken in every place."""
    check_text(PLACES[place].replace("HOST", host))


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.1", "did you mean 127.0.0.1?"),
        ("0x7f.0.0.1", "did you mean 127.0.0.1?"),
        ("010.0.0.1", "write 10.0.0.1"),
        ("b\u00fccher.example", "write xn--bcher-kva.example"),
        ("$H", "write ${H}"),
        ("{{ .Values.h }}", "fill in the template first"),
    ],
)
def test_the_hint_is_what_to_write(host: str, said: str) -> None:
    """If the intended value is clear, the hint is that value."""
    assert said in hints(PLACES["upstream"].replace("HOST", host))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://redis:$REDIS_PORT/0", "write ${REDIS_PORT}"),
        ("redis://:$REDIS_PASSWORD@redis", "write ${REDIS_PASSWORD}; a literal $ is written %24"),
        ("mysql://$DB_USER:x@db/sluice", "write ${DB_USER}"),
        ("mysql://u:x@db/$DB_NAME", "write ${DB_NAME}"),
        ("redis+sentinel://s1/$SERVICE", "write ${SERVICE}"),
        ("ratio://r?owner=$OWNER", "write ${OWNER}"),
        ("unix:///run/$NAME/redis.sock", "write ${NAME}"),
        ("redis://:{{ .Values.password }}@redis", "write variables as ${NAME}"),
        ("throttr+v5://h ?size=8", "remove it"),
    ],
)
def test_the_rest_of_a_store_is_no_variable_either(url: str, said: str) -> None:
    """A user, password, port, database or option that nothing has filled in is a problem."""
    assert said in hints(f'store: "{url}"\n{ROUTES}')


@pytest.mark.parametrize("password", ["pa$$word", "$ecret", "a$B", "%24HOST", "x{y}z"])
def test_a_password_may_have_a_dollar(password: str) -> None:
    """What is not a variable alone is a password like any other."""
    check_text(f'store: "redis://:{password}@redis"\n{ROUTES}')


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("::ffff:7f00:1", "127.0.0.1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[::1%lo]", "::1%lo"),
        ("Web.Internal.", "Web.Internal."),
    ],
)
def test_an_address_has_one_spelling(written: str, read: str) -> None:
    """IPv6 is shortened, and what is an IPv4 address is one."""
    assert parse_host(written) == read
