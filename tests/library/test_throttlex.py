"""The library in ThrottleX's words: its `check(key)`, and its filter as a middleware."""

from __future__ import annotations

import json

import pytest

from gateway import Limiter, Policy
from gateway.base.errors import ConfigError
from tests.library.http import Serve

FEW = Policy("few", throttlex={"capacity": 2, "refillRate": 0})


async def test_check() -> None:
    """A key is checked and consumed in one call; the result has ThrottleX's fields."""
    async with Limiter(FEW) as limiter:
        decisions = [await limiter.acquire("user-123") for _ in range(3)]
        assert [bool(decision) for decision in decisions] == [True, True, False]
        assert decisions[0].headers == {
            "X-RateLimit-Limit": "2",
            "X-RateLimit-Remaining": "1",
            "Retry-After": "0",
        }
        assert decisions[2].headers == {"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0"}
        assert await limiter.acquire("user-124")


async def test_a_token_that_is_yet_to_come() -> None:
    """If nothing is left, a success already says when there will be more."""
    slow = Policy("slow", throttlex={"capacity": 3, "refillRate": 0.01})
    async with Limiter(slow) as limiter:
        decision = await limiter.acquire("a", 3)
        assert decision.headers["Retry-After"] == "100"
        assert (await limiter.acquire("a")).headers["Retry-After"] == "100"


async def test_middlewares_answer_as_its_design_says(serve: Serve) -> None:
    """A refusal is its JSON, with the key that the request was counted under."""
    policy = Policy("few", throttlex={"capacity": 1, "refillRate": 0, "per": ["api_key"]})
    fields = {"X-API-Key": "k-1"}
    async with serve(Limiter(policy), "few") as site:
        assert (await site.ask("/hello", headers=fields)).status == 200
        refused = await site.ask("/hello", headers=fields)
    assert refused.status == 429
    assert json.loads(refused.body)["message"] == "Rate limit exceeded for key: k-1"


def test_two_policies_of_one_key() -> None:
    """ThrottleX has only the key, so nothing can be counted twice under it."""
    limiter = Limiter(FEW, Policy("more", throttlex={}))
    with pytest.raises(ValueError, match="two policies of throttlex"):
        limiter.plan("/", ("few", "more"))


def test_a_table_needs_its_database() -> None:
    """A limiter in memory has no table to look keys up in."""
    with pytest.raises(ConfigError, match="throttlex_policy"):
        Limiter(Policy("api", throttlex={"policies": "table"}))
