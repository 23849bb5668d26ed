"""What another configuration would change: every option is told, and a spelling changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.explaining.differences import differences, needs_restart
from gateway.config.explaining.schema import models
from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.retry import RetryConfig
from gateway.config.models.tiers import TierConfig
from tests.config.other_values import (
    CORPUS,
    DASHES,
    PAIRS,
    PLACES,
    Place,
    another,
    checked,
    config,
    differs,
    options_of,
    replaced,
)

KINDS: Final = frozenset({"envoy_rls", "ratio", "smockron", "throttr"})
TOLD_AS: Final = {
    ("GatewayConfig", "listen"): "Listener",
    ("GatewayConfig", "listeners"): "Listener",
    ("GatewayConfig", "policies"): "Policy",
    ("GatewayConfig", "routes"): "Route",
    ("GatewayConfig", "upstreams"): "Upstream",
    ("FrontendConfig", "bind"): "Listener",
    ("ListenerConfig", "address"): "Listener",
    ("RouteConfig", "name"): "is now called",
    ("PolicyConfig", "limits"): "limit ",
    ("EnvoyRule", "match"): "rule",
    **{("TierConfig", name): "tier" for name in TierConfig.model_fields},
    **{("ConditionConfig", name): "Policy" for name in ConditionConfig.model_fields},
    ("RatioRule", "owner"): "rule",
    ("RatioRule", "resource"): "rule",
    ("CertificateConfig", "cert"): "certificate",
    ("Target", "scheme"): "target",
    ("Target", "host"): "target",
    ("Target", "port"): "target",
    ("Target", "socket"): "target",
    ("UpstreamConfig", "targets"): "target",
    ("EnvoyRlsConfig", "domains"): "domain",
    ("ListenerTls", "certificates"): "certificate",
    ("RatioConfig", "rules"): "rule",
}
"""Options with sentences that have other words than the name."""

MAY_MEAN_THE_SAME: Final = frozenset(
    {
        ("HealthConfig", "status"),
        ("LeasedConfig", "size"),
        ("ListenerTls", "certificates"),
        ("PolicyConfig", "leased"),
        ("PolicyConfig", "limits"),
        ("RouteConfig", "max_body"),
        ("RouteConfig", "retry"),
        ("ThrottrConfig", "size"),
        *(("RetryConfig", name) for name in RetryConfig.model_fields),
    }
)
"""Options whose other value may be another spelling, or what applies without them anyway."""


def told(old: str, new: str) -> list[str]:
    """Return what `sluice diff` prints, for two texts."""
    one, other = checked(old), checked(new)
    found = differences(one.config, other.config)
    return [other.secrets.hide(one.secrets.hide(each)) for each in found]


def _is_apart(place: Place) -> bool:
    """Return whether an option is told as a listener of another kind."""
    return place.model.__name__ == "FrontendConfig" and place.name in KINDS


FIELDS: Final = [
    (name, field)
    for name, model in sorted(models(GatewayConfig).items())
    for field in model.model_fields
    if not (name == "FrontendConfig" and field in KINDS)
]


@pytest.mark.parametrize("path", PAIRS, ids=[path.stem for path in PAIRS])
def test_the_sentences_are_as_written(path: Path) -> None:
    """Two configurations give exactly the sentences in their file."""
    old, new, expected = path.read_text().split(DASHES)
    assert "\n".join(told(old, new) or ["Nothing changes."]) + "\n" == expected


def test_there_are_pairs() -> None:
    """The pairs are found: an empty folder would pass everything."""
    assert len(PAIRS) >= 10


@pytest.mark.parametrize(("model", "field"), FIELDS)
def test_every_option_is_told(model: str, field: str) -> None:
    """A change of any option of any part of a configuration has a sentence that names it."""
    is_told = False
    for place in PLACES:
        if (place.model.__name__, place.name) != (model, field):
            continue
        value = another(place)
        if not differs(value, place.value):
            continue
        changed = replaced(place.config, place.path, place.name, value)
        found = "\n".join(differences(place.config, changed))
        assert TOLD_AS.get((model, field), field) in found, (place.path, place.value, value)
        is_told = True
        break
    assert is_told, "no configuration has this option"


@given(st.sampled_from(CORPUS))
def test_the_same_is_no_difference(one: GatewayConfig) -> None:
    """No configuration differs from itself, nor from a copy."""
    assert differences(one, one) == []
    assert differences(one, one.model_copy(deep=True)) == []
    assert needs_restart(one, one) == []


@given(st.data())
def test_another_value_is_a_difference_both_ways(data: st.DataObject) -> None:
    """Whatever changes, there is a sentence, and one for the way back."""
    old = data.draw(st.sampled_from(CORPUS))
    places = [place for place in options_of(old) if not _is_apart(place)]
    place = data.draw(st.sampled_from(places))
    value = another(place)
    new = replaced(old, place.path, place.name, value)
    there, back = differences(old, new), differences(new, old)
    assert bool(there) == bool(back)
    if (place.model.__name__, place.name) not in MAY_MEAN_THE_SAME:
        assert bool(there) == differs(value, place.value)


@given(st.sampled_from(CORPUS), st.sampled_from(CORPUS))
def test_any_two_configurations_can_be_compared(one: GatewayConfig, other: GatewayConfig) -> None:
    """They are equal in both directions or in none, and sentences are sentences."""
    there, back = differences(one, other), differences(other, one)
    assert bool(there) == bool(back)
    assert all(each.endswith(".") and "\n" not in each for each in there + back)
    assert one == other or there


def test_a_route_without_retries_is_not_one_that_has_those_of_its_upstream() -> None:
    """`retry: off` is more than no `retry`, if the upstream has one."""
    text = (
        "upstreams: {{ w: {{ targets: http://x:80, retry: 3 }} }}\n"
        "routes:\n  /a: {{ upstream: w{} }}\n"
    )
    assert told(text.format(""), text.format(", retry: off")) == [
        "Route /a: retry: {tries: 3} becomes off."
    ]
    assert told(text.format(""), text.format(", retry: 3")) == []


def test_pages_of_a_route_are_added_to_those_of_the_file() -> None:
    """`error_pages: off` in a route is more than no `error_pages`."""
    text = "error_pages: {{ 404: none here }}\nroutes:\n  /a: {{ respond: ok{} }}\n"
    assert told(text.format(""), text.format(", error_pages: off")) == [
        "Route /a: error_pages: {404: {html: none here}} becomes off."
    ]
    assert told(text.format(""), text.format(", error_pages: { 404: none here }")) == []


def test_a_limit_that_a_route_lends_to_others() -> None:
    """The limit of a route may be used by name, elsewhere."""
    text = (
        "routes:\n  /a: {{ upstream: http://x:80, limit: {} }}\n"
        "  /b: {{ upstream: http://x:80, policies: /a }}\n"
    )
    assert told(text.format("5/s"), text.format("6/s")) == [
        "Route /a: limit 5/s becomes 6/s. The limit also applies to route /b."
    ]


def test_an_order_that_matters_is_told() -> None:
    """Routes of the same path are tried in the order of the file; others by how specific."""
    specific = "routes:\n  /a: { respond: ok }\n  /**: { respond: ok }\n"
    assert told(specific, "routes:\n  /**: { respond: ok }\n  /a: { respond: ok }\n") == []


def test_workers_wait_longer_for_their_limiter_unless_told() -> None:
    """The default of a deadline that is written out is shorter than what workers have."""
    text = (
        "server: {{ workers: 2 }}\nstore: {{ url: memory://{} }}\n"
        "routes:\n  /a: {{ respond: ok }}\n"
    )
    assert told(text.format(""), text.format(", deadline: 20ms")) == [
        "store.deadline: 1s becomes 20ms."
    ]
    assert told(text.format(", deadline: 50ms"), text.format("")) == [
        "store.deadline: 50ms becomes 1s."
    ]
    assert told(text.format(", deadline: 1s"), text.format("")) == []
    redis = text.replace("memory://", "redis://redis")
    assert told(redis.format(""), redis.format(", deadline: 20ms")) == []


@pytest.mark.parametrize("value", ["1", "auto", "16"])
def test_what_takes_a_restart(value: str) -> None:
    """The number of processes."""
    text = "server: {{ workers: {} }}\nroutes:\n  /a: {{ respond: ok }}\n"
    old, new = config(text.format(2)), config(text.format(value))
    assert needs_restart(old, new) == [f"server.workers: 2 becomes {value}."]
    assert differences(old, new) == [
        f"server.workers: 2 becomes {value}. A reload is refused: upgrade or restart the gateway."
    ]


def test_many_names_are_counted() -> None:
    """A sentence has few names."""
    text = "".join(f"  /r{index}: {{ respond: ok }}\n" for index in range(20))
    old, new = f"routes:\n{text}", f"routes:\n{text.replace('ok', 'yes')}"
    assert told(old, new) == [
        "Routes /r0, /r1, /r2, /r3, /r4, /r5, /r6, /r7 and 12 more: respond.body: ok becomes yes."
    ]


def test_long_texts_are_not_shown() -> None:
    """A page is told by its size, and another of that size as changed."""
    text = 'routes:\n  /a: {{ respond: "{}" }}\n'
    one, other = "a" * 2048, "b" * 1024
    assert told(text.format(one), text.format(other)) == [
        "Route /a: respond.body: 2 KiB of text becomes 1 KiB of text."
    ]
    assert told(text.format(one), text.format("c" * 2048)) == [
        "Route /a: respond.body has changed."
    ]
