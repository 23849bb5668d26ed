"""What comes of descriptors: all agree or nothing is spent, and each is told its own."""

from __future__ import annotations

import asyncio

import pytest

from gateway.stores.scripted import ScriptedStore
from gateway.systems.envoy import plan as envoy_rls_plan
from gateway.systems.envoy.messages import (
    OK,
    OVER_LIMIT,
    Descriptor,
    DescriptorStatus,
    EnvoyStatus,
    Override,
)
from gateway.systems.envoy.rules import (
    MAX_OVERRIDES,
    TooManyOverridesError,
    UnknownUnitError,
)
from tests.envoy_rls import codes, config_of, serving, still_clock

UNLIMITED = EnvoyStatus(OK, None, 2**32 - 1)
A = {"a": "1"}
B = {"b": "1"}
LIMITS = """
    { match: { a: "*" }, limit: 3/h }
    { match: { b: "*" }, limit: 1/h }
"""
CONFIG = config_of(LIMITS)


async def test_every_value_has_a_count_of_its_own() -> None:
    """And its answer has the remainder, the limit, and when all of it is available again."""
    async with serving(CONFIG, still_clock()) as service:
        left = [(await service.ask(A)).statuses[0] for _ in range(4)]
        other = await service.ask({"a": "2"})

    told = DescriptorStatus(3, 3)
    assert left == [
        EnvoyStatus(OK, told, 2, 1200),
        EnvoyStatus(OK, told, 1, 2400),
        EnvoyStatus(OK, told, 0, 3600),
        EnvoyStatus(OVER_LIMIT, told, 0, 1200),
    ]
    assert other.statuses == [EnvoyStatus(OK, told, 2, 1200)]


async def test_what_is_over_comes_back_when_it_says() -> None:
    """A client that obeys is not early."""
    clock = still_clock()
    async with serving(config_of(LIMITS), clock) as service:
        await service.ask(B)
        refused = await service.ask(B)
        assert refused.statuses[0].reset_s == 3600
        clock.advance(us=3600 * 1_000_000)

        assert (await service.ask(B)).code == OK


async def test_nothing_is_spent_on_a_request_that_is_refused() -> None:
    """One descriptor is over its limit: what the others have left stays."""
    async with serving(CONFIG, still_clock()) as service:
        assert codes(await service.ask(A, B)) == (OK, [OK, OK])
        for _ in range(5):
            reply = await service.ask(A, B)
            assert codes(reply) == (OVER_LIMIT, [OK, OVER_LIMIT])
            assert [status.remaining for status in reply.statuses] == [2, 0]
        assert (await service.ask(A)).statuses[0].remaining == 1


async def test_descriptors_that_cost_differently_agree_as_well() -> None:
    """They are separate questions; a cost that was taken for nothing is given back."""
    async with serving(CONFIG, still_clock()) as service:
        dear = Descriptor((("a", "1"),), hits=2)
        assert codes(await service.ask(dear, B)) == (OK, [OK, OK])
        assert codes(await service.ask(Descriptor((("a", "1"),), hits=1), B, hits=2)) == (
            OVER_LIMIT,
            [OK, OVER_LIMIT],
        )
        assert (await service.ask(A)).statuses[0].remaining == 0


async def test_the_same_descriptor_twice_counts_twice() -> None:
    """As with Envoy's own service."""
    async with serving(CONFIG, still_clock()) as service:
        reply = await service.ask(A, A)
        assert [status.remaining for status in reply.statuses] == [2, 1]
        assert codes(await service.ask(A, A)) == (OVER_LIMIT, [OK, OVER_LIMIT])
        assert (await service.ask(A)).statuses[0].remaining == 0


async def test_two_descriptors_of_one_rule_have_their_own_counts() -> None:
    """The answer distinguishes them."""
    async with serving(CONFIG, still_clock()) as service:
        await service.ask(A, hits=2)
        reply = await service.ask(A, {"a": "2"})
        assert [status.remaining for status in reply.statuses] == [0, 2]


@pytest.mark.parametrize(("hits", "remaining"), [(0, 2), (1, 2), (2, 1), (3, 0)])
async def test_hits_are_what_a_request_costs(hits: int, remaining: int) -> None:
    """The default is one."""
    async with serving(CONFIG, still_clock()) as service:
        assert (await service.ask(A, hits=hits)).statuses[0].remaining == remaining


async def test_more_hits_than_the_limit_can_never_pass() -> None:
    """However many: the answer has the remainder, and when all of it is available again."""
    async with serving(CONFIG, still_clock()) as service:
        for hits in (4, 2**32 - 1):
            reply = await service.ask(A, hits=hits)
            assert reply.statuses == [EnvoyStatus(OVER_LIMIT, DescriptorStatus(3, 3), 3, 3600)]
        assert (await service.ask(A)).statuses[0].remaining == 2
        reply = await service.ask(A, hits=2**32 - 1)
        assert reply.statuses == [EnvoyStatus(OVER_LIMIT, DescriptorStatus(3, 3), 2, 1200)]
        assert (await service.ask(A)).statuses[0].remaining == 1


async def test_a_descriptor_with_no_hits_only_looks() -> None:
    """Its own value takes precedence over the request's."""
    look = Descriptor((("a", "1"),), hits=0)
    async with serving(CONFIG, still_clock()) as service:
        for _ in range(9):
            assert (await service.ask(look, hits=5)).statuses == [
                EnvoyStatus(OK, DescriptorStatus(3, 3), 3, 0)
            ]


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "sliding_window_counter"])
async def test_negative_hits_give_back(algorithm: str) -> None:
    """What a request turns out not to have cost; never more than the limit."""
    refund = Descriptor((("a", "1"),), hits=2, is_refund=True)
    config = config_of(f'{{ match: {{ a: "*" }}, limit: 3/24h, algorithm: {algorithm} }}')
    async with serving(config, still_clock()) as service:
        await service.ask(A, hits=3)
        assert (await service.ask(A)).code == OVER_LIMIT
        assert (await service.ask(refund)).statuses[0].remaining == 2
        assert (await service.ask(refund)).statuses[0].remaining == 3
        assert (await service.ask(A, hits=3)).code == OK
        assert (await service.ask(A)).code == OVER_LIMIT


async def test_algorithms_that_know_single_requests_give_nothing_back() -> None:
    """They do not claim that they did."""
    refund = Descriptor((("a", "1"),), hits=2, is_refund=True)
    rules = '{ match: { a: "*" }, limit: 3/24h, algorithm: sliding_window_log }'
    async with serving(config_of(rules), still_clock()) as service:
        await service.ask(A, hits=3)
        assert (await service.ask(refund)).statuses[0].remaining == 0
        assert (await service.ask(A)).code == OVER_LIMIT


async def test_what_no_rule_matches_is_not_limited() -> None:
    """Nor is an unknown domain."""
    async with serving(CONFIG, still_clock()) as service:
        assert (await service.ask({"c": "1"})).statuses == [EnvoyStatus(OK)]
        assert (await service.ask({"a": "1", "c": "1"})).statuses == [EnvoyStatus(OK)]
        assert (await service.ask(B, domain="elsewhere")).statuses == [EnvoyStatus(OK)]


async def test_a_written_value_may_be_unlimited_or_refused() -> None:
    """Though a rule for any value would limit it."""
    rules = """
        { match: { a: "*" }, limit: 1/h }
        { match: { a: friend }, unlimited: true }
        { match: { a: foe }, refuse: true, name: banned }
    """
    async with serving(config_of(rules), still_clock()) as service:
        for _ in range(3):
            assert (await service.ask({"a": "friend"})).statuses == [UNLIMITED]
        refused = await service.ask({"a": "foe"}, A)
        assert refused.code == OVER_LIMIT
        assert refused.statuses[0] == EnvoyStatus(OVER_LIMIT, DescriptorStatus(0, 0, "banned"))
        assert (await service.ask(A)).code == OK, "nothing was spent on what is refused"
        assert service.metrics.policies["shop/a=foe"].refused == 1


async def test_shadow_counts_and_lets_through() -> None:
    """Metrics show it, and the other limits are still spent."""
    rules = """
        { match: { a: "*" }, limit: 3/h }
        { match: { b: "*" }, limit: 1/h, shadow: true }
    """
    async with serving(config_of(rules), still_clock()) as service:
        replies = [await service.ask(A, B) for _ in range(4)]
        assert [codes(reply) for reply in replies[:3]] == [(OK, [OK, OK])] * 3
        assert codes(replies[3]) == (OVER_LIMIT, [OVER_LIMIT, OK])
        assert [status.remaining for status in replies[1].statuses] == [1, 0]
        policy = service.metrics.policies["shop/b=*"]
        assert (policy.passed, policy.refused) == (1, 3)


async def test_the_whole_listener_may_be_in_shadow() -> None:
    """Each descriptor has its true answer, the request passes."""
    async with serving(config_of(LIMITS, "shadow: true"), still_clock()) as service:
        await service.ask(B)
        assert codes(await service.ask(A, B)) == (OK, [OK, OVER_LIMIT])


async def test_values_may_share_a_count() -> None:
    """All of a pattern, or those of some keys."""
    rules = """
        { match: { path: /v1/* }, limit: 2/h, shared: true }
        { match: { path: "*", user: "*" }, limit: 1/h, shared: path }
    """
    async with serving(config_of(rules), still_clock()) as service:
        assert (await service.ask({"path": "/v1/a"})).statuses[0].remaining == 1
        assert (await service.ask({"path": "/v1/b"})).statuses[0].remaining == 0
        assert (await service.ask({"path": "/v1/c"})).code == OVER_LIMIT
        assert (await service.ask({"path": "/x", "user": "u"})).code == OK
        assert (await service.ask({"path": "/y", "user": "u"})).code == OVER_LIMIT
        assert (await service.ask({"path": "/y", "user": "v"})).code == OK


async def test_a_rule_may_replace_another() -> None:
    """Where both match one request, only the one that replaces counts."""
    rules = """
        { match: { user: "*" }, limit: 1/h, name: usual }
        { match: { user: "*", path: /big }, limit: 3/h, replaces: usual }
    """
    big = {"user": "u", "path": "/big"}
    async with serving(config_of(rules), still_clock()) as service:
        for _ in range(3):
            assert codes(await service.ask({"user": "u"}, big)) == (OK, [OK, OK])
        assert codes(await service.ask({"user": "u"}, big)) == (OVER_LIMIT, [OK, OVER_LIMIT])
        assert (await service.ask({"user": "u"})).code == OK


async def test_several_limits_of_a_rule_all_hold() -> None:
    """The answer has the tightest."""
    rules = '{ match: { a: "*" }, limits: [5/h, 2/m], name: both }'
    async with serving(config_of(rules), still_clock()) as service:
        first = await service.ask(A)
        assert first.statuses == [EnvoyStatus(OK, DescriptorStatus(2, 2, "both"), 1, 30)]
        await service.ask(A)
        assert (await service.ask(A)).statuses == [
            EnvoyStatus(OVER_LIMIT, DescriptorStatus(2, 2, "both"), 0, 30)
        ]


async def test_a_policy_may_be_named_by_several_rules() -> None:
    """The same descriptor has the same count then, in any of them; `per all` is one for all."""
    rules = """
        { match: { a: "*" }, policies: everybody }
        { match: { b: "*" }, policies: everybody }
    """
    more = "policies: { everybody: 2/h per all }"
    async with serving(config_of(rules, more=more), still_clock()) as service:
        await service.ask(A)
        await service.ask(B)
        assert (await service.ask({"a": "2"})).code == OVER_LIMIT


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("7/s", DescriptorStatus(7, 1)),
        ("7/m", DescriptorStatus(7, 2)),
        ("7/h", DescriptorStatus(7, 3)),
        ("7/d", DescriptorStatus(7, 4)),
        ("7/30d", DescriptorStatus(7, 5)),
        ("7/365d", DescriptorStatus(7, 6)),
        ("7/day in UTC", DescriptorStatus(7, 4)),
        ("7/month in UTC", DescriptorStatus(7, 5)),
        ("7/5m", DescriptorStatus(7, 0)),
        ("7/week in UTC", DescriptorStatus(7, 0)),
    ],
)
def test_limits_are_told_in_units_of_time(limit: str, told: DescriptorStatus) -> None:
    """A period that is not one unit is not reported as one."""
    config = config_of(f"{{ match: {{ a: x }}, limit: {limit} }}")

    async def ask() -> DescriptorStatus | None:
        async with serving(config, still_clock()) as service:
            return (await service.ask({"a": "x"})).statuses[0].limit

    assert asyncio.run(ask()) == told


async def test_a_descriptor_may_bring_its_own_limit() -> None:
    """Instead of the configured one, which is left alone; none is needed."""
    own = Descriptor((("a", "1"),), Override(1, 3))
    async with serving(CONFIG, still_clock()) as service:
        assert (await service.ask(own)).statuses == [
            EnvoyStatus(OK, DescriptorStatus(1, 3), 0, 3600)
        ]
        assert (await service.ask(own)).code == OVER_LIMIT
        assert (await service.ask(Descriptor((("z", "1"),), Override(1, 3)))).code == OK
        assert (await service.ask(A)).statuses[0].remaining == 2
        assert (await service.ask(own._replace(override=Override(0, 1)))).code == OVER_LIMIT
        huge = own._replace(override=Override(2**32 - 1, 1))
        assert (await service.ask(huge)).code == OK


async def test_limits_that_descriptors_bring_may_be_passed_over() -> None:
    """And are then held to the configured ones."""
    own = Descriptor((("b", "1"),), Override(9, 3))
    async with serving(config_of(LIMITS, "overrides: off"), still_clock()) as service:
        assert (await service.ask(own)).statuses[0].limit == DescriptorStatus(1, 3)


async def test_a_limit_that_cannot_be_read_or_is_one_too_many_is_an_error() -> None:
    """A caller that invents ever new ones would fill memory with them."""
    async with serving(CONFIG, still_clock()) as service:
        for unit in (0, 7, 99):
            with pytest.raises(UnknownUnitError):
                await service.ask(Descriptor((("a", "1"),), Override(1, unit)))
        for number in range(MAX_OVERRIDES):
            await service.ask(Descriptor((("a", "1"),), Override(number, 1)))
        with pytest.raises(TooManyOverridesError):
            await service.ask(Descriptor((("a", "1"),), Override(MAX_OVERRIDES, 1)))


async def test_too_many_combinations_of_limits_are_asked_about_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stores remember each combination; what comes of a request is the same."""
    monkeypatch.setattr(envoy_rls_plan, "MAX_JOINED", 1)
    rules = """
        { match: { a: "*" }, limit: 3/h }
        { match: { b: "*" }, limit: 1/h }
        { match: { c: "*" }, limit: 3/h }
    """
    c = {"c": "1"}
    async with serving(config_of(rules), still_clock()) as service:
        assert codes(await service.ask(A, c)) == (OK, [OK, OK])
        assert codes(await service.ask(A, B)) == (OK, [OK, OK])
        refused = await service.ask(A, B, c)
        assert codes(refused) == (OVER_LIMIT, [OK, OVER_LIMIT, OK])
        assert [status.remaining for status in refused.statuses] == [1, 0, 2]
        assert (await service.ask(A, c)).statuses[1].remaining == 1


@pytest.mark.parametrize("consistency", ["leased", "eventual"])
def test_policies_may_decide_nearby(consistency: str) -> None:
    """Some of a request's descriptors here, others in the store: it is refused as a whole."""
    rules = f"""
        {{ match: {{ a: "*" }}, limit: 3/h, consistency: {consistency} }}
        {{ match: {{ b: "*" }}, limit: 2/h }}
    """
    config = config_of(rules, more="store: { url: 'memory://', deadline: 5s }")
    look = Descriptor((("a", "1"),), hits=0)

    async def ask() -> list[int]:
        async with serving(config, lambda: ScriptedStore(still_clock())) as service:
            found = [(await service.ask(A, B)).code for _ in range(3)]
            found += [(await service.ask(A)).code for _ in range(2)]
            found.append((await service.ask(look, B, hits=2)).code)
            refund = Descriptor((("a", "1"),), hits=1, is_refund=True)
            found.append((await service.ask(refund)).code)
            return found

    wanted = [OK, OK, OVER_LIMIT, OK, OVER_LIMIT, OVER_LIMIT, OK]
    assert asyncio.run(ask()) == wanted


QUOTAS = config_of("""
    { match: { a: "*" }, limit: 3/h }
    { match: { q: "*" }, limit: 1/h, quota: true }
    { match: { r: "*" }, limit: 2/h, quota: true }
    { match: { r: none }, refuse: true, quota: true }
    { match: { s: "*" }, limit: 1/h, shadow: true, quota: true }
    { match: { free: "*" }, unlimited: true }
""")


async def test_a_request_is_refused_if_all_its_quotas_are_over() -> None:
    """One with something left is enough; those that are over report it, and spend nothing."""
    async with serving(QUOTAS, still_clock()) as service:
        q, r = {"q": "1"}, {"r": "1"}
        assert codes(await service.ask(q, r)) == (OK, [OK, OK])
        assert codes(await service.ask(q, r)) == (OK, [OVER_LIMIT, OK])
        assert codes(await service.ask(q, r)) == (OVER_LIMIT, [OVER_LIMIT, OVER_LIMIT])
        assert codes(await service.ask(q)) == (OVER_LIMIT, [OVER_LIMIT])
        assert codes(await service.ask({"r": "none"}, {"q": "2"})) == (OK, [OVER_LIMIT, OK])
        assert codes(await service.ask({"r": "none"})) == (OVER_LIMIT, [OVER_LIMIT])
        # What nothing limits is no quota that has something left.
        assert codes(await service.ask(q, {"free": "1"})) == (OVER_LIMIT, [OVER_LIMIT, OK])
        assert codes(await service.ask(q, {"z": "1"})) == (OVER_LIMIT, [OVER_LIMIT, OK])


async def test_a_limit_that_is_no_quota_refuses_whatever_quotas_say() -> None:
    """They have spent nothing then; and quotas that are all over spend none of its."""
    async with serving(QUOTAS, still_clock()) as service:
        assert codes(await service.ask(A, {"q": "1"}, hits=4)) == (OVER_LIMIT, [OVER_LIMIT] * 2)
        dear = Descriptor((("a", "1"),), hits=4)
        assert codes(await service.ask(dear, {"q": "1"})) == (OVER_LIMIT, [OVER_LIMIT, OK])
        assert codes(await service.ask(A, {"q": "1"})) == (OK, [OK, OK])
        assert codes(await service.ask(A, {"q": "1"})) == (OVER_LIMIT, [OK, OVER_LIMIT])
        assert (await service.ask(A)).statuses[0].remaining == 1


async def test_a_quota_in_shadow_is_never_over() -> None:
    """So it keeps the others of its request from refusing."""
    async with serving(QUOTAS, still_clock()) as service:
        replies = [codes(await service.ask({"s": "1"}, {"q": "1"})) for _ in range(2)]
        assert replies == [(OK, [OK, OK]), (OK, [OK, OVER_LIMIT])]


async def test_all_limits_of_a_listener_may_be_quotas() -> None:
    """Then a descriptor that no rule is for has something left, too."""
    async with serving(config_of(LIMITS, "quota: on"), still_clock()) as service:
        assert codes(await service.ask(A, B)) == (OK, [OK, OK])
        assert codes(await service.ask(A, B)) == (OK, [OK, OVER_LIMIT])
        assert codes(await service.ask(B)) == (OVER_LIMIT, [OVER_LIMIT])
        assert codes(await service.ask(B, {"z": "1"})) == (OK, [OVER_LIMIT, OK])


async def test_a_quota_that_is_over_is_counted_as_refused_by_its_policy_alone() -> None:
    """The call is one that passed."""
    async with serving(QUOTAS, still_clock()) as service:
        for _ in range(2):
            await service.ask({"q": "1"}, {"r": "1"})
        policy = service.metrics.policy("shop/q=*")
        assert (policy.passed, policy.refused) == (1, 1)
