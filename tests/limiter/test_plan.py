"""Policies compiled for a route: the question for the store, and what the answer is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from multidict import CIMultiDict

from gateway.config.models.gateway import PolicyConfig
from gateway.limiter.plan import UNBOUNDED_WAIT_US, MissingKey, Plan
from gateway.net.tls.peer import ClientCertificate
from gateway.observe.metrics import PolicyMetrics
from gateway.stores.base import Ask
from gateway.wiring.policies import RouteKeys, compile_plan, compile_policy
from gateway.wiring.sources import Sources

SECOND_US = 1_000_000


@dataclass
class Request:
    """What keys are made from."""

    client_key: str = "192.0.2.1"
    host: str = "a.test"
    method: str = "GET"
    query: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    client_certificate: ClientCertificate | None = None


def plan(*configs: dict[str, Any], route: str = "r") -> Plan:
    """The plan of a route with policies p0, p1, ..."""
    policies = {f"p{n}": PolicyConfig.model_validate(each) for n, each in enumerate(configs)}
    compiled = {
        name: compile_policy(name, each, PolicyMetrics()) for name, each in policies.items()
    }
    return compile_plan(RouteKeys(route, Sources()), list(policies), policies, compiled)


def question(the_plan: Plan, request: Request | None = None) -> Ask:
    """What the store is asked."""
    found = the_plan.ask(request or Request())
    assert isinstance(found, tuple)
    assert not isinstance(found, MissingKey)
    ask, rules = found
    assert len(ask.limits) == len(ask.keys) == len(rules)
    assert tuple(rule.limit for rule in rules) == ask.limits
    return ask


def with_header(value: str) -> Request:
    """A request with a key."""
    return Request(headers=CIMultiDict({"X-Key": value}))


def test_one_limit() -> None:
    """One question, whose bound on waiting is the limit's own."""
    ask = question(plan({"limits": ["10/s burst 20 per ip"]}))
    assert ask.keys == ("192.0.2.1",)
    assert (ask.cost, ask.max_wait_us) == (1, UNBOUNDED_WAIT_US)
    (limit,) = ask.limits
    assert (limit.count, limit.period_us, limit.burst) == (10, SECOND_US, 20)
    assert (limit.scope, limit.max_wait_us) == ("p0/ip", 0)


def test_many_limits_of_many_policies_are_one_question() -> None:
    """In the order of the policies and of their limits; each rule knows its policy."""
    the_plan = plan(
        {"limits": ["10/s", "100/m per all"]}, {"limits": ["5/s per header:X-Key+route"]}
    )
    ask = question(the_plan, with_header("k"))
    assert [limit.scope for limit in ask.limits] == ["p0/ip", "p0/all", "p1/header:x-key+route"]
    assert [rule.policy.name for rule in the_plan.rules] == ["p0", "p0", "p1"]
    assert [rule.title for rule in the_plan.rules] == ["p0-1", "p0-2", "p1"]
    assert [policy.name for policy in the_plan.policies] == ["p0", "p1"]
    assert repr(the_plan) == "<Plan of 3 limits: p0, p1>"


def test_a_scope_is_the_same_after_a_change_of_numbers() -> None:
    """So counts survive a restart; what is counted by is what makes a scope."""
    before = plan({"limits": ["10/s", "100/h", "1/s per all"]})
    after = plan({"limits": ["99/m burst 7", "1/d", "2/s per all"], "queue": {"max_wait": "1s"}})
    scopes = [rule.limit.scope for rule in before.rules]
    assert scopes == [rule.limit.scope for rule in after.rules]
    assert len(set(scopes)) == 3
    other = plan({"limits": ["10/s per host"]})
    assert other.rules[0].limit.scope not in scopes


def test_one_scope_serves_all_routes_of_a_policy() -> None:
    """Two routes share a policy's counts, unless it counts by route."""
    config = {"limits": ["10/s per ip", "10/s per ip+route"]}
    first, second = (question(plan(config, route=route)) for route in ("a", "b"))
    assert [limit.scope for limit in first.limits] == [limit.scope for limit in second.limits]
    assert first.keys[0] == second.keys[0]
    assert first.keys[1] != second.keys[1]


def test_the_queue_bounds_the_wait() -> None:
    """By its time, or by the time that its last place takes, whichever is shorter."""
    (long,) = plan({"limits": ["10/s"], "queue": {"max": 5, "max_wait": "1m"}}).rules
    assert long.limit.max_wait_us == 5 * SECOND_US // 10
    assert long.policy.queue_max == 5
    (short,) = plan({"limits": ["10/s"], "queue": {"max": 50, "max_wait": "20ms"}}).rules
    assert short.limit.max_wait_us == 20_000
    (log,) = plan(
        {
            "limits": ["10/s"],
            "algorithm": "sliding_window_log",
            "queue": {"max": 1, "max_wait": "2s"},
        }
    ).rules
    assert log.limit.max_wait_us == 2 * SECOND_US


def test_policies_with_different_queues_wait_differently() -> None:
    """Each limit keeps its own patience in the common question."""
    the_plan = plan(
        {"limits": ["10/s"], "queue": {"max": 100, "max_wait": "1s"}},
        {"limits": ["10/s"]},
        {"limits": ["10/s"], "queue": {"max": 100, "max_wait": "3s"}},
    )
    assert [limit.max_wait_us for limit in question(the_plan).limits] == [
        SECOND_US,
        0,
        3 * SECOND_US,
    ]
    assert [policy.queue_max for policy in the_plan.policies] == [100, 0, 100]


@pytest.mark.parametrize("others", [(), ({"limits": ["100/m"]},)], ids=["alone", "with another"])
def test_a_request_that_lacks_what_is_counted(others: tuple[dict[str, Any], ...]) -> None:
    """It is counted by address, all such together, not at all, or must not pass."""

    def found(if_missing: str) -> object:
        config = {"limits": ["10/s per header:X-Key"], "if_missing": if_missing}
        return plan(config, *others).ask(Request())

    by_ip, shared = found("ip"), found("shared")
    assert isinstance(by_ip, tuple)
    assert isinstance(shared, tuple)
    assert "192.0.2.1" in by_ip[0].keys[0]
    assert "192.0.2.1" not in shared[0].keys[0]
    missing = found("reject")
    assert isinstance(missing, MissingKey)
    assert (missing.policy.name, missing.word) == ("p0", "header:x-key")
    assert (missing.status, missing.fields) == (400, b"")
    missing = found("unauthorized")
    assert isinstance(missing, MissingKey)
    assert missing.status == 401
    assert missing.fields == (b'WWW-Authenticate: ApiKey realm="p0", in="header", name="x-key"\r\n')
    skipped = found("skip")
    if others:
        assert isinstance(skipped, tuple)
        assert [limit.scope for limit in skipped[0].limits] == ["p1/ip"]
        assert [rule.policy.name for rule in skipped[1]] == ["p1"]
    else:
        assert skipped is None


def test_a_request_that_has_it() -> None:
    """Its value distinguishes identities; the policy's other options are as configured."""
    config = {
        "limits": ["10/s per header:X-Key"],
        "if_missing": "reject",
        "on_store_error": "closed",
        "headers": "legacy",
        "on_limit": {"status": 503, "body": "text"},
    }
    the_plan = plan(config)
    assert question(the_plan, with_header("a")).keys != question(the_plan, with_header("b")).keys
    policy = the_plan.policies[0]
    assert (policy.on_store_error, policy.status, policy.body) == ("closed", 503, "text")
    assert (policy.draft_headers, policy.legacy_headers) == (False, True)
