"""ratio's service: what its clients are told, byte for byte and rule by rule."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from gateway.base.clock import ManualClock
from gateway.base.errors import StoreUnavailable
from gateway.limits.rate import Limit
from gateway.stores.scripted import Fail, ScriptedHold, ScriptedStore
from tests.ratio import OK, OVER_LIMIT, read_files_first, request, serving
from tests.servers import until

SECOND_US = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _files_are_read() -> None:
    read_files_first()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that only the test moves."""
    return ManualClock(10**15)


async def test_answers_are_those_of_ratio_byte_for_byte() -> None:
    """A question in two fields, one code in the answer."""
    assert request("svc", "/x") == bytes.fromhex("0a03737663" + "12022f78")
    async with serving("2/m") as service:
        answers = [await service.ask("svc", "/x") for _ in range(3)]
    assert answers == [b"\x08\x01", b"\x08\x01", b"\x08\x02"]


async def test_empty_texts_are_texts_like_any_other() -> None:
    """An owner or a resource that is left out is taken, as by ratio."""
    async with serving("1/m") as service:
        assert [await service.passes("", "") for _ in range(2)] == [True, False]
        assert await service.passes("", "x")
        assert await service.passes("x", "")


async def test_owners_and_resources_are_apart_however_they_are_joined() -> None:
    """What ratio itself makes of them, owner-resource, would mix these up."""
    async with serving("1/m") as service:
        for owner, resource in (
            ("a-b", "c"),
            ("a", "b-c"),
            ("a|resource=b", "c"),
            ("a", "b|c"),
            ("A", "b-c"),
            ("ä", "b"),
            ("a\u0308", "b"),
        ):
            assert await service.passes(owner, resource), (owner, resource)
            assert not await service.passes(owner, resource), (owner, resource)


async def test_long_texts_are_apart_to_the_last_character() -> None:
    """They are no longer than a message may be."""
    async with serving("1/m") as service:
        long = "x" * 60_000
        for last in "ab":
            data = (long + last).encode()
            question = b"\x12" + bytes((0x80 | len(data) & 0x7F, 0x80 | len(data) >> 7 & 0x7F))
            question += bytes((len(data) >> 14,)) + data
            assert await service.method(question) == OK
            assert await service.method(question) == OVER_LIMIT
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await service.method(b"\x12\x80\x80\x08" + b"x" * 131_072)
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_refused_hits_count_so_that_who_does_not_stop_stays_refused(
    clock: ManualClock,
) -> None:
    """As ratio does; a client that pauses for a window is admitted again."""
    async with serving("2/m", clock) as service:
        assert [await service.passes() for _ in range(2)] == [True, True]
        for _ in range(10):
            clock.advance(seconds=29)
            assert not await service.passes()
        clock.advance(seconds=61)
        assert await service.passes()


async def test_refused_hits_need_not_count(clock: ManualClock) -> None:
    """The option, or an algorithm of one's own."""
    for ratio in ("{limit: 2/m, count_refused: false}", "{limit: 2/m, algorithm: fixed_window}"):
        async with serving(ratio, clock) as service:
            clock.now_us = 10**15 // (60 * SECOND_US) * 60 * SECOND_US
            assert [await service.passes() for _ in range(3)] == [True, True, False]
            clock.advance(seconds=61)
            assert [await service.passes() for _ in range(3)] == [True, True, False]


async def test_a_hit_exactly_one_window_old_still_counts(clock: ManualClock) -> None:
    """As with ratio; a moment later it does not."""
    async with serving("{limit: 1/m, count_refused: false}", clock) as service:
        assert await service.passes()
        clock.advance(seconds=60)
        assert not await service.passes()
        clock.advance(us=1)
        assert await service.passes()


async def test_the_first_rule_that_matches_counts() -> None:
    """And the limit next to the rules applies to the rest."""
    rules = (
        '{rules: [{owner: "pay-*", resource: "/v1/**", limit: 1/m},'
        ' {owner: "pay-*", limit: 2/m}, {resource: /health, unlimited: true}], limit: 3/m}'
    )
    async with serving(rules) as service:

        async def let_through(owner: str, resource: str) -> int:
            return sum([await service.passes(owner, resource) for _ in range(5)])

        assert await let_through("pay-eu", "/v1/pay/now") == 1
        assert await let_through("pay-us", "/v1/pay/now") == 1
        assert await let_through("pay-eu", "/v2/pay") == 2
        assert await let_through("pay", "/v1/pay") == 3
        assert await let_through("other", "/health") == 5


@pytest.mark.parametrize(("unmatched", "answer"), [("allow", OK), ("refuse", OVER_LIMIT)])
async def test_what_no_rule_matches_has_the_answer_that_is_chosen(
    unmatched: str, answer: bytes
) -> None:
    """If there is no limit next to the rules."""
    async with serving(f"{{rules: [{{owner: a, limit: 1/m}}], unmatched: {unmatched}}}") as service:
        assert [await service.ask("b") for _ in range(3)] == [answer] * 3
        assert await service.ask("a") == OK


async def test_limits_may_be_per_owner_or_resource_or_all() -> None:
    """Whatever else differs counts together then."""
    pairs = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    for per, passing in (
        ("per owner", [True, False, True, False]),
        ("per resource", [True, True, False, False]),
        ("per owner+resource", [True] * 4),
        ("", [True] * 4),
        ("per all", [True, False, False, False]),
    ):
        async with serving(f"1/m {per}") as service:
            assert [await service.passes(*pair) for pair in pairs] == passing, per


async def test_several_limits_are_spent_all_or_none() -> None:
    """One that refuses keeps the others whole."""
    policies = "policies: {narrow: 1/m per owner, wide: 3/m per all}"
    async with serving("{policies: [narrow, wide]}", more=policies) as service:
        assert [await service.passes("a") for _ in range(5)] == [True] + [False] * 4
        assert [await service.passes(owner) for owner in "bcd"] == [True, True, False]


async def test_what_is_no_question_is_an_error_and_counted() -> None:
    """The connection persists."""
    async with serving("1/m") as service:
        for bad in (b"\x0a\x05hi", b"\x12\x01\xff"):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await service.method(bad)
            assert error.value.code() is grpc.StatusCode.INTERNAL
        assert service.counters.malformed == {"message": 2}
        assert await service.passes()


async def test_answers_are_counted() -> None:
    """By the listener and by policy."""
    async with serving("{rules: [{owner: free, unlimited: true}], limit: 2/m}") as service:
        for _ in range(5):
            await service.ask()
        await service.ask("free")
        assert service.counters.answers == {
            ("RateLimit", "ok"): 3,
            ("RateLimit", "over_limit"): 3,
        }
        policy = service.metrics.policy("ratio")
        assert (policy.passed, policy.refused) == (2, 3)


@pytest.mark.parametrize(
    ("on_store_error", "answers"),
    [
        ("open", [OK] * 4),
        ("local", [OK, OK, OVER_LIMIT, OVER_LIMIT]),
        ("closed", [grpc.StatusCode.UNAVAILABLE] * 4),
    ],
)
async def test_a_store_that_does_not_decide_is_answered_for_as_the_policy_says(
    on_store_error: str, answers: list[bytes | grpc.StatusCode]
) -> None:
    """Closed is an error, as with ratio; and health checks show it."""
    store = ScriptedStore()
    ratio = f"{{limit: 2/m, on_store_error: {on_store_error}}}"
    async with serving(ratio, store) as service:
        assert await service.health() == 1
        store.is_ready = False
        store.then(*[Fail(StoreUnavailable("down"))] * 4)
        found: list[bytes | grpc.StatusCode] = []
        for _ in range(4):
            try:
                found.append(await service.ask())
            except grpc.aio.AioRpcError as error:
                found.append(error.code())
        assert found == answers
        assert await service.health() == (2 if on_store_error == "closed" else 1)
        metrics = service.metrics.policy("ratio")
        assert metrics.store_error_refused == (4 if on_store_error == "closed" else 0)
        assert service.counters.answers["RateLimit", "error"] == metrics.store_error_refused


async def test_a_client_that_leaves_has_its_hit_given_back() -> None:
    """It will not do what it asked about."""
    store = ScriptedStore()
    go_on = asyncio.Event()
    async with serving("2/m", store, "store: {url: memory://, deadline: 10s}") as service:
        store.then(ScriptedHold(go_on))
        call = service.method(request())
        await until(lambda: bool(store.asked))
        call.cancel()
        # The server has seen it once a later call is answered that was sent after it.
        store.then(ScriptedHold(go_on))
        other = service.method(request())
        await until(lambda: len(store.asked) == 2)
        go_on.set()
        assert await other == OK
        await until(lambda: bool(store.given_back))
        assert len(store.given_back) == 1


async def test_the_end_lets_calls_under_way_end() -> None:
    """And takes no more."""
    store = ScriptedStore()
    go_on = asyncio.Event()
    async with serving("2/m", store, "store: {url: memory://, deadline: 10s}") as service:
        store.then(ScriptedHold(go_on))
        call = service.method(request())
        await until(lambda: bool(store.asked))
        draining = asyncio.ensure_future(service.frontend.drain(60))
        await asyncio.sleep(0)
        go_on.set()
        assert await call == OK
        await draining
        with pytest.raises(grpc.aio.AioRpcError):
            await service.ask()


async def test_the_store_is_asked_by_names_that_stay_the_same() -> None:
    """A changed limit keeps its counts: the name of a policy is that of its rule's patterns."""
    store = ScriptedStore()
    async with serving('{rules: [{owner: "pay-*", limit: 1/m}], limit: 5/m}', store) as service:
        await service.ask("pay-eu", "/v1")
        await service.ask("a|b", "/v1=2")
    asks = [ask for batch in store.asked for ask in batch]
    assert [(ask.limits[0].scope, ask.keys) for ask in asks] == [
        ("ratio/pay-*:*/ip", ("owner=pay-eu|resource=/v1",)),
        ("ratio/ip", ("owner=a%7Cb|resource=/v1%3D2",)),
    ]
    assert asks[0].limits[0] == Limit(
        1,
        60 * SECOND_US,
        1,
        "sliding_window_log",
        scope="ratio/pay-*:*/ip",
        count_refused=True,
    )
