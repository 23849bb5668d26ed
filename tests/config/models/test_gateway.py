"""The models: defaults as documented, values in whole units, defaults handed down."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.base.errors import ConfigError
from gateway.config.checking.check import check_text
from gateway.config.explaining.render import render
from gateway.config.models.gateway import (
    Address,
    AdminConfig,
    GatewayConfig,
    OnLimit,
    PolicyConfig,
    QueueConfig,
    RouteConfig,
    Target,
    Timeouts,
    UpstreamConfig,
)
from gateway.config.values.address import parse_address
from gateway.limits.rate import Limit


def parse(text: str) -> GatewayConfig:
    """The configuration that `text` stands for."""
    return check_text(text).config


def test_the_shortest_configuration_is_complete() -> None:
    """One route is enough; all else has a value."""
    config = parse("routes: {/**: {upstream: http://a:1}}")

    assert [listener.address for listener in config.listen] == [Address("127.0.0.1", 8080)]
    assert config.store.url == "memory://"
    assert config.store.deadline == 20_000
    assert config.store.share == "auto"
    assert config.admin == AdminConfig(listen=Address("127.0.0.1", 9901))
    assert config.server.header_timeout == 10_000_000
    assert config.server.max_header_size == 16_384
    assert config.server.max_body is None
    assert config.upstreams == {"http://a:1": UpstreamConfig(targets=(Target(host="a", port=1),))}
    assert config.routes == (RouteConfig(name="/**", path="/**", upstream="http://a:1"),)


def test_a_limit_on_a_route_is_a_policy_of_its_name() -> None:
    """Short and long form give the same values."""
    short = parse(
        """
        routes:
          /v1/pay:
            upstream: http://a:1
            limit: 10/s burst 20 per header:X-API-Key
            queue: {max_wait: 2s}
        """
    )
    long = parse(
        """
        upstreams: {"http://a:1": {targets: [{url: http://a:1}]}}
        policies:
          /v1/pay: {limits: [10/s burst 20 per header:X-API-Key], queue: {max: 100, max_wait: 2s}}
        routes: [{name: /v1/pay, path: /v1/pay, upstream: "http://a:1", policies: [/v1/pay]}]
        """
    )

    assert short == long
    line = short.policies["/v1/pay"].limits[0]
    assert line.limit == Limit(10, 1_000_000, 20, "token_bucket", 2_000_000)
    assert line.per == ("header:x-api-key",)


def test_a_limit_on_a_route_comes_after_its_named_policies() -> None:
    """Named policies and the route's own limit apply together."""
    config = parse(
        """
        policies: {all: 100/s per all}
        routes: {/a: {upstream: http://a:1, policies: all, limit: 1/s}}
        """
    )

    assert config.routes[0].policies == ("all", "/a")


def test_defaults_fill_what_is_left_out_and_nothing_else() -> None:
    """Each field of on_limit and timeouts is separate; `off` counts as set."""
    config = parse(
        """
        defaults:
          on_limit: {status: 503, body: text}
          queue: {max_wait: 1s}
          timeouts: {connect: 1s, total: 9s}
          headers: none
          on_store_error: open
        upstreams:
          u: {targets: http://a:1, timeouts: {connect: 5s}}
        policies:
          filled: 1/s
          own:
            {limit: 1/s, on_limit: {status: 429}, queue: off, headers: draft, on_store_error: local}
        routes: {/a: {upstream: u, policies: [filled, own]}}
        """
    )

    filled, own = config.policies["filled"], config.policies["own"]
    assert filled.on_limit == OnLimit(status=503, body="text")
    assert filled.queue == QueueConfig(max_wait=1_000_000)
    assert filled.limits[0].limit.max_wait_us == 1_000_000
    assert (filled.headers, filled.on_store_error) == ("none", "open")
    assert own.on_limit == OnLimit(status=429, body="text")
    assert own.queue is None
    assert own.limits[0].limit.max_wait_us == 0
    assert (own.headers, own.on_store_error) == ("draft", "local")
    assert config.upstreams["u"].timeouts == Timeouts(connect=5_000_000, total=9_000_000)


def test_values_are_in_whole_microseconds_and_bytes() -> None:
    """Whatever the unit it was written in."""
    config = parse(
        """
        routes: {/**: {upstream: http://a:1}}
        server: {header_timeout: 1.5s, body_timeout: 2m, max_header_size: 8KiB, max_body: 10MB}
        """
    )

    assert config.server.header_timeout == 1_500_000
    assert config.server.body_timeout == 120_000_000
    assert config.server.max_header_size == 8_192
    assert config.server.max_body == 10_000_000


def test_networks_and_addresses_become_values() -> None:
    """Networks of both families, single addresses, and every way to write a listener."""
    config = parse(
        """
        listen: [localhost:80, "[::1]:81", ":82", "*:83", 0.0.0.0:0]
        trusted_proxies: [10.0.0.0/8, "fd00::/8", 192.0.2.1]
        routes: {/**: {upstream: "http://[fd00::1]"}}
        """
    )

    assert [str(address) for address in config.listen] == [
        "localhost:80",
        "[::1]:81",
        ":82",
        ":83",
        "0.0.0.0:0",
    ]
    assert config.trusted_proxies == tuple(
        map(ip_network, ("10.0.0.0/8", "fd00::/8", "192.0.2.1/32"))
    )
    assert config.upstreams["http://[fd00::1]"].targets[0].url == "http://[fd00::1]:80"


def test_hosts_and_header_names_are_in_small_letters() -> None:
    """Both are compared without regard to case, so they are kept in one."""
    config = parse(
        """
        routes:
          "*.Example.COM/**": {upstream: http://a:1, headers: {X-Beta: "Yes"}}
        """
    )

    assert config.routes[0].host == "*.example.com"
    assert config.routes[0].headers == {"x-beta": "Yes"}


def test_models_can_be_built_without_a_file() -> None:
    """In Python a bare number is whole microseconds, and short forms are understood too."""
    config = GatewayConfig.model_validate(
        {
            "upstreams": {"u": UpstreamConfig(targets=("http://a:1",), keepalive=5)},
            "policies": {"p": {"limit": "5/s", "queue": {"max_wait": 7}}},
            "routes": {"/a": {"upstream": "u", "policies": "p"}},
        }
    )

    assert config.upstreams["u"].keepalive == 5
    assert config.policies["p"].limits[0].limit.max_wait_us == 7


def test_what_is_wrong_without_a_file_is_said_too() -> None:
    """A pattern that cannot be read raises, as any other value that cannot."""
    with pytest.raises(ValidationError, match="has no path"):
        GatewayConfig.model_validate({"routes": {"v1": {"upstream": "http://a:1"}}})


@pytest.mark.parametrize("build", [PolicyConfig, lambda **kw: PolicyConfig.model_validate(kw)])
def test_a_policy_binds_its_limits(build: Any) -> None:
    """The limits of a policy carry its algorithm and its longest wait."""
    policy = build(limits=["3/m"], algorithm="sliding_window_log", queue={"max_wait": 9_000_000})

    limit = policy.limits[0].limit
    assert (limit.algorithm, limit.max_wait_us) == ("sliding_window_log", 9_000_000)


def test_configurations_do_not_change() -> None:
    """What was checked stays as it was checked."""
    config = parse("routes: {/**: {upstream: http://a:1}}")

    with pytest.raises(ValidationError, match="frozen"):
        config.domain = "other"  # type: ignore[misc]


def test_credentials_of_the_store_are_not_shown() -> None:
    """Neither in the representation of a configuration nor in the URL for logs."""
    config = parse(
        "{store: 'redis://user:hunter2@redis/1', routes: {/**: {upstream: 'http://a:1'}}}"
    )

    assert "hunter2" not in repr(config)
    assert config.store.redacted_url == "redis://***@redis/1"


def test_the_password_of_a_key_file_is_not_shown() -> None:
    """Nor is the one that stands among the options, in the URL for logs or in a line shown."""
    config = parse(
        "{store: 'rediss://redis?ssl_password=hunter2', routes: {/**: {upstream: 'http://a:1'}}}"
    )
    with pytest.raises(ConfigError) as caught:
        parse(
            "store: rediss://redis/x?ssl_password=hunter2\nroutes: {/**: {upstream: 'http://a:1'}}"
        )

    assert config.store.redacted_url == "rediss://redis?ssl_password=***"
    assert "hunter2" not in render(caught.value.problems)


@pytest.mark.parametrize(
    ("listen", "reachable"),
    [
        (":9901", "127.0.0.1:9901"),
        ("0.0.0.0:9901", "127.0.0.1:9901"),
        ("[::]:9901", "[::1]:9901"),
        ("10.0.0.1:9901", "10.0.0.1:9901"),
    ],
)
def test_a_listener_on_every_address_is_reached_by_loopback(listen: str, reachable: str) -> None:
    """Where `healthcheck -c` asks."""
    assert str(parse_address(listen).reachable) == reachable
