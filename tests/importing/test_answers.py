"""What was imported answers as Envoy's own service is documented to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from gateway.base.clock import ManualClock
from gateway.config.checking.check import Source, check_text
from gateway.config.models.gateway import GatewayConfig
from gateway.importing.envoy_ratelimit import import_envoy_ratelimit
from gateway.systems.envoy.messages import OK, OVER_LIMIT
from tests.envoy_rls import Asked, Service, serving, still_clock

FILE: Final = b"""
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: remote_address
    value: 192.0.2.9
    rate_limit: {unit: hour, requests_per_unit: 0}
  - key: remote_address
    value: 192.0.2.1
  - key: remote_address
    value: 198.51.100.*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 3}
  - key: user
    descriptors:
      - key: path
        value: /soft
        rate_limit: {unit: month, requests_per_unit: 1}
        shadow_mode: true
      - key: path
        rate_limit: {unit: hour, requests_per_unit: 1, name: paths}
  - key: plan
    value: gold
    rate_limit: {unit: hour, requests_per_unit: 4, replaces: [{name: paths}]}
"""


@pytest.fixture
def clock() -> ManualClock:
    """The time of the service."""
    return still_clock()


@pytest.fixture(scope="module")
def config() -> GatewayConfig:
    """What comes of `FILE`."""
    return check_text(import_envoy_ratelimit([Source("shop.yaml", FILE)]).text).config


@pytest.fixture
async def service(config: GatewayConfig, clock: ManualClock) -> AsyncIterator[Service]:
    """The service with its limits."""
    async with serving(config, clock) as running:
        yield running


async def allowed(service: Service, *descriptors: Asked, times: int = 5) -> int:
    """How many of so many requests are let through."""
    replies = [await service.ask(*descriptors) for _ in range(times)]
    assert {reply.code for reply in replies} <= {OK, OVER_LIMIT}
    return sum(reply.code == OK for reply in replies)


async def test_each_value_has_a_count_of_its_own(service: Service, clock: ManualClock) -> None:
    """As many as the limit per hour, for each value; an hour later the same again."""
    for address in ("203.0.113.1", "203.0.113.2"):
        assert await allowed(service, {"remote_address": address}) == 2
    clock.advance(seconds=3600)
    assert await allowed(service, {"remote_address": "203.0.113.1"}) == 2


async def test_a_value_that_is_written_comes_first(service: Service) -> None:
    """All may be refused, or none; the values of a pattern may share one count."""
    assert await allowed(service, {"remote_address": "192.0.2.9"}) == 0
    assert await allowed(service, {"remote_address": "192.0.2.1"}) == 5
    assert await allowed(service, {"remote_address": "198.51.100.1"}, times=2) == 2
    assert await allowed(service, {"remote_address": "198.51.100.2"}, times=2) == 1


async def test_what_is_not_described_is_not_limited(service: Service) -> None:
    """Neither what is less deep than a limit, nor another key, nor another order of them."""
    assert await allowed(service, {"user": "ann"}) == 5
    assert await allowed(service, {"host": "a"}) == 5
    assert await allowed(service, {"path": "/", "user": "ann"}) == 5


async def test_a_shadow_refuses_nobody(service: Service) -> None:
    """It counts, and admits every request."""
    assert await allowed(service, {"user": "ann", "path": "/soft"}) == 5
    assert await allowed(service, {"user": "ann", "path": "/hard"}) == 1


async def test_a_limit_replaces_another(service: Service) -> None:
    """Where both match only one counts, and the other is as it was afterwards."""
    path = {"user": "bob", "path": "/"}
    assert await allowed(service, {"plan": "gold"}, path) == 4
    assert await allowed(service, path) == 1
