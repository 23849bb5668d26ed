"""URLs of stores: what each store says of its own, checked alike by the schema and by the store."""

from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.values.store_url import is_same_store, parse_store_url
from gateway.stores.kinds import KINDS, STORES
from gateway.stores.urls import StoreUrlError, read_parts, usable

GOOD: Final = {
    "memory": ("memory://", "memory://?max_keys=100000"),
    "redis": (
        "redis://127.0.0.1",
        "rediss://u:p%40@[::1]:7000/4?ratio=pay&ssl_strict=true&ssl_check_hostname=false",
        "unix:///run/redis.sock?db=3",
    ),
    "sentinel": ("redis+sentinel://a,b:1/main/2?sentinel_password=x", "rediss+sentinel://a/main"),
    "cluster": ("redis+cluster://a:7000,[::1]", "rediss+cluster://a/0?ssl_ca_certs=/ca.pem"),
    "mysql": ("mysql://u:p@db/counts?connections=64&ssl=true&unix_socket=/run/m.sock",),
    "throttr": ("throttr+v5://host", "throttr+v5://[::1]:9000?size=64"),
    "ratio": ("ratio://host:50051?owner=shop",),
    "smockron": ("smockron://host?rejected=0.5%&domain=shop",),
}
BAD: Final = (
    *("memory://host", "memory://?max_keys=0", "memory://?max=1"),
    *("redis://", "redis://a,b", "redis://a/x", "redis://a?ssl_strict=true", "redis://a:0"),
    *("rediss://a?ssl_cert_reqs=perhaps", "rediss://a?ssl_check_hostname=off", "unix://a"),
    *("redis+sentinel://a", "redis+sentinel://a,/main", "redis+cluster://a/3"),
    *("mysql://db", "mysql://db/a/b", "mysql://db/c?connections=65", "mysql://db/c?ssl=false"),
    *("throttr+v5://u@host", "throttr+v5://host?size=24", "throttr+v5://host/1"),
    *("ratio://a,b", "ratio://a?owner=", "smockron://a:65535", "smockron://a?rejected=101%"),
)
ONLY_WHEN_READ: Final = {
    *("memory://?max_keys=0", "rediss://a?ssl_check_hostname=off", "mysql://db/c?ssl=false"),
    *("smockron://a:65535", "smockron://a?rejected=101%"),
}
"""What a pattern cannot say, or says more loosely."""
PATTERN: Final = re.compile("|".join(f"(?:{kind.pattern})" for kind in KINDS))


@pytest.mark.parametrize(("kind", "url"), [(kind, url) for kind in GOOD for url in GOOD[kind]])
def test_what_can_be_used_is_read(kind: str, url: str) -> None:
    """By its store, in the configuration and by the pattern for editors; its store explains it."""
    rules = STORES[url.partition("://")[0]]
    said = parse_store_url(url)

    assert said.kind == kind == rules.kind
    assert said == usable(url, rules.read, "an example")
    assert PATTERN.fullmatch(url)
    assert said.place in " ".join(rules.explain(said, "shop"))
    assert is_same_store(said, said)


def test_every_scheme_has_an_example() -> None:
    """The table above leaves no store out."""
    assert {url.partition("://")[0] for urls in GOOD.values() for url in urls} == set(STORES)


@pytest.mark.parametrize("url", BAD)
def test_what_cannot_be_used_is_refused(url: str) -> None:
    """With a hint, or a message that needs none; mostly an editor marks it as well."""
    with pytest.raises(StoreUrlError) as caught:
        parse_store_url(url)
    assert caught.value.hint or "is empty" in caught.value.message
    assert bool(PATTERN.fullmatch(url)) <= (url in ONLY_WHEN_READ)


@given(st.sampled_from(BAD), st.text(st.characters(exclude_characters="/?#@[]"), min_size=4))
def test_a_store_that_is_made_directly_tells_no_value_of_its_url(url: str, password: str) -> None:
    """Its error goes to a log, and any value may be a password."""
    scheme, _, rest = url.partition("://")
    secret = f"{scheme}://:s3cret{password}@{rest}?x=s3cret"

    with pytest.raises(ValueError, match="such as an example") as caught:
        usable(secret, STORES[scheme].read, "an example")

    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.text())
def test_any_text_is_taken_apart_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        parts = read_parts(text)
    except StoreUrlError:
        return
    assert all(0 <= host.port <= 65_535 for host in parts.hosts)
