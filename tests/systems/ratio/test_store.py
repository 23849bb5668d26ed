"""The store in a ratio server: what is asked, what is made of answers, and every failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import grpc.aio
import pytest

from gateway.base.clock import Clock, ManualClock, monotonic_us
from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.config.models.policies import PolicyConfig
from gateway.limiter.decider import Decider, Outcome
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import Limit
from gateway.observe.metrics import PolicyMetrics, StoreMetrics
from gateway.stores.base import Ask
from gateway.stores.opening import open_store
from gateway.systems.grpc.calls import Context
from gateway.systems.ratio.messages import (
    METHOD,
    OVER_LIMIT,
    SERVICE,
    RatioQuestion,
    read_question,
    write_code,
)
from gateway.systems.ratio.store import MAX_CALLS, RatioStore, resource_of
from gateway.wiring.policies import RouteKeys, compile_plan, compile_policy
from gateway.wiring.sources import Sources
from tests import grpc_engine
from tests.servers import until
from tests.systems.ratio.server import RatioServer, fail, hang, say

DAY_US = 86_400_000_000

grpc_engine.keep()
LIMIT = Limit(5, DAY_US, 5, "sliding_window_log", scope="pay/ip", count_refused=True)
PATIENCE_US = 5_000_000


@asynccontextmanager
async def _served(quantity: int = 5) -> AsyncIterator[RatioServer]:
    server = RatioServer(quantity, DAY_US)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def _asking(
    server: RatioServer, deadline_us: int = PATIENCE_US, clock: Clock = monotonic_us
) -> AsyncIterator[RatioStore]:
    store = RatioStore(
        f"ratio://127.0.0.1:{server.port}", domain="shop", deadline_us=deadline_us, clock=clock
    )
    await store.start()
    try:
        yield store
    finally:
        await store.aclose()


def _ask(key: str = "k", cost: int = 1, limit: Limit = LIMIT) -> Ask:
    return Ask((limit,), (key,), cost, 0)


async def _decide(store: RatioStore, *asks: Ask) -> list[Verdict]:
    return list(await store.decide(asks))


async def test_as_many_pass_as_the_server_lets_through() -> None:
    """The server's limit holds, and its yes and no are all that is known."""
    async with _served() as server, _asking(server) as store:
        assert store.is_ready
        verdicts = await _decide(store, *[_ask() for _ in range(7)])
        assert sorted(verdict.allowed for verdict in verdicts) == [False] * 2 + [True] * 5
        allowed = next(verdict for verdict in verdicts if verdict.allowed)
        refused = next(verdict for verdict in verdicts if not verdict.allowed)
        assert allowed == Verdict(True, 0, 0, [Decision(True, 0, 0, 5, 4, DAY_US, 0)])
        assert refused == Verdict(False, 0, DAY_US, [Decision(False, 0, DAY_US, 5, 0, DAY_US, 0)])


async def test_the_owner_is_the_domain_and_the_resource_the_key() -> None:
    """Unless the URL names an owner."""
    async with _served() as server:
        async with _asking(server) as store:
            await _decide(store, _ask("10.0.0.1"))
        url = f"ratio://127.0.0.1:{server.port}?owner=other"
        store = RatioStore(url, domain="shop", deadline_us=PATIENCE_US)
        await store.start()
        await _decide(store, _ask("10.0.0.1"))
        await store.aclose()
        assert server.asked == [
            RatioQuestion("shop", "pay/ip#10.0.0.1"),
            RatioQuestion("other", "pay/ip#10.0.0.1"),
        ]


async def test_keys_and_scopes_are_apart() -> None:
    """Identities are distinguished to the last bit, even invalid text."""
    keys = ("a", "A", "a ", "ä", "a\u0308", "a#b", '"a"', "", "\x00", "a\udcff", '"a\\udcff"')
    scopes = ("pay", "pay/ip", "pay#ip", "pay%23ip")
    async with _served(quantity=1) as server, _asking(server) as store:
        for scope in scopes:
            for key in keys:
                ask = _ask(key, limit=replace(LIMIT, scope=scope))
                assert (await _decide(store, ask))[0].allowed, (scope, key)
                assert not (await _decide(store, ask))[0].allowed
    names = {resource_of(replace(LIMIT, scope=scope), key) for scope in scopes for key in keys}
    assert len(names) == len(scopes) * len(keys)


async def test_what_costs_more_is_that_many_calls() -> None:
    """All of which must be admitted; admitted ones count, as refused ones do with ratio."""
    async with _served() as server, _asking(server) as store:
        assert (await _decide(store, _ask(cost=4)))[0].allowed
        assert len(server.asked) == 4
        assert not (await _decide(store, _ask(cost=2)))[0].allowed
        assert not (await _decide(store, _ask(cost=1)))[0].allowed


async def test_what_can_never_pass_is_not_asked() -> None:
    """More than the limit holds, or more calls than one request may be."""
    large = replace(LIMIT, count=10 * MAX_CALLS, burst=10 * MAX_CALLS)
    async with _served() as server, _asking(server) as store:
        for ask in (_ask(cost=6), _ask(cost=MAX_CALLS + 1, limit=large)):
            (verdict,) = await _decide(store, ask)
            assert (verdict.allowed, verdict.retry_after_us) == (False, NEVER)
        assert server.asked == []


async def test_a_look_is_a_health_check_that_nobody_counts() -> None:
    """It passes while the server serves; a server without health checks is one that serves."""
    async with _served() as server, _asking(server) as store:
        (verdict,) = await _decide(store, _ask(cost=0))
        assert (verdict.allowed, server.asked) == (True, [])
        server.is_serving = False
        with pytest.raises(StoreUnavailable) as error:
            await _decide(store, _ask(cost=0))
        assert error.value.reason == "not_serving"


async def test_a_look_passes_where_there_are_no_health_checks() -> None:
    """As with ratio itself."""
    bare = grpc.aio.server()
    port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    server = RatioServer(5, DAY_US)
    server.port = port
    async with _asking(server) as store:
        assert (await _decide(store, _ask(cost=0)))[0].allowed
        with pytest.raises(StoreReplyError) as error:
            await _decide(store, _ask())
        assert error.value.reason == "unimplemented"
    await bare.stop(None)


async def test_a_look_that_no_health_check_answers_asks_once_a_question_has_failed() -> None:
    """With ratio itself, only a question shows whether its Redis is back; no key is used."""
    asked: list[RatioQuestion] = []
    is_away = False

    async def answer(data: bytes, context: Context) -> bytes:
        asked.append(read_question(data))
        if is_away:
            await context.abort(grpc.StatusCode.UNKNOWN, "getting hits count: refused")
        return write_code(OVER_LIMIT)

    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    handler = grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})
    bare = grpc.aio.server(handlers=[handler])
    server = RatioServer(5, DAY_US)
    server.port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    async with _asking(server) as store:
        assert (await _decide(store, _ask(cost=0)))[0].allowed
        assert asked == []
        is_away = True
        for ask in (_ask(), _ask(cost=0), _ask(cost=0)):
            with pytest.raises(StoreUnavailable, match=r"^getting hits") as error:
                await _decide(store, ask)
            assert error.value.reason == "unknown"
        is_away = False
        for _ in range(2):
            assert (await _decide(store, _ask(cost=0)))[0].allowed
        own = RatioQuestion("shop", resource_of(LIMIT, "k"))
        nothing = RatioQuestion("shop", "nothing")
        assert asked == [own, nothing, nothing, nothing]
    await bare.stop(None)


async def test_nothing_is_given_back_and_nothing_held() -> None:
    """A ratio server takes nothing back: too little may pass, never too much."""
    async with _served(quantity=1) as server, _asking(server) as store:
        (verdict,) = await _decide(store, _ask())
        await store.give_back(_ask(), verdict)
        assert await store.renew(_ask(), verdict)
        (verdict,) = await _decide(store, _ask())
        assert not verdict.allowed
        assert not await store.renew(_ask(), verdict)


async def test_an_empty_batch_has_no_verdicts() -> None:
    """Nothing asked, nothing answered."""
    async with _served() as server, _asking(server) as store:
        assert await _decide(store) == []


async def test_several_limits_of_one_ask_are_an_error() -> None:
    """They cannot be all or none; `sluice check` lets no such policy through."""
    async with _served() as server, _asking(server) as store:
        with pytest.raises(StoreReplyError):
            await _decide(store, Ask((LIMIT, LIMIT), ("a", "b"), 1, 0))
        assert server.asked == []


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (fail(grpc.StatusCode.UNKNOWN, "redis is down"), StoreUnavailable, "unknown"),
        (fail(grpc.StatusCode.UNAVAILABLE, "later"), StoreUnavailable, "unavailable"),
        (fail(grpc.StatusCode.CANCELLED, "no"), StoreUnavailable, "cancelled"),
        (fail(grpc.StatusCode.UNIMPLEMENTED, ""), StoreReplyError, "unimplemented"),
        (say(b""), StoreReplyError, "reply"),
        (say(b"\x08\x00"), StoreReplyError, "reply"),
        (say(b"\x08\x09"), StoreReplyError, "reply"),
        (say(b"\xff"), StoreReplyError, "reply"),
    ],
)
async def test_what_the_server_cannot_decide_is_an_error_of_the_store(
    answer: object, kind: type[StoreError], reason: str
) -> None:
    """And the next answer is taken again."""
    async with _served() as server, _asking(server) as store:
        server.instead = answer  # type: ignore[assignment]
        with pytest.raises(kind) as error:
            await _decide(store, _ask())
        assert error.value.reason == reason
        server.instead = None
        assert (await _decide(store, _ask()))[0].allowed


async def test_a_server_that_does_not_answer_is_late() -> None:
    """After the deadline, which it received."""
    async with _served() as server, _asking(server, deadline_us=50_000) as store:
        server.instead = hang
        with pytest.raises(StoreTimeout):
            await _decide(store, _ask())


async def test_who_gives_up_takes_the_calls_along() -> None:
    """The server is told that the call is cancelled."""
    ended = asyncio.Event()

    async def answer(context: object) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with _served() as server, _asking(server) as store:
        server.instead = answer
        asking = asyncio.ensure_future(store.decide([_ask()]))
        await server.served.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await ended.wait()


async def test_a_server_that_is_away_is_told_at_once_and_found_when_it_is_back() -> None:
    """Nothing else has to be done."""
    async with _served() as server, _asking(server) as store:
        assert (await _decide(store, _ask()))[0].allowed
        await server.stop()
        await until(lambda: not store.is_ready)
        with pytest.raises(StoreUnavailable):
            await _decide(store, _ask())
        await server.start()
        await until(lambda: store.is_ready)
        assert (await _decide(store, _ask()))[0].allowed


async def test_a_server_that_was_never_there_is_no_reason_not_to_start() -> None:
    """It is asked as soon as it comes."""
    server = RatioServer(5, DAY_US)
    await server.start()
    await server.stop()
    async with _asking(server) as store:
        assert not store.is_ready
        with pytest.raises(StoreUnavailable):
            await _decide(store, _ask())
        await server.start()
        await until(lambda: store.is_ready)
        assert (await _decide(store, _ask()))[0].allowed
    await server.stop()


async def test_a_store_that_is_closed_says_so() -> None:
    """Calls in flight end, too."""
    async with _served() as server, _asking(server) as store:
        server.instead = hang
        asking = asyncio.ensure_future(store.decide([_ask()]))
        await server.served.wait()
        await store.aclose()
        with pytest.raises(StoreUnavailable) as error:
            await asking
        assert error.value.reason == "connection_lost"
        with pytest.raises(StoreUnavailable) as error:
            await _decide(store, _ask())
        assert error.value.reason == "closed"


async def test_a_connection_that_leads_nowhere_is_made_anew() -> None:
    """A host that vanished does not close its connections."""
    clock = ManualClock(1)
    async with _served() as server, _asking(server, clock=clock) as store:
        server.instead = hang
        waiting = asyncio.ensure_future(store.decide([_ask()]))
        await server.served.wait()
        server.instead = None
        clock.advance(seconds=3)
        assert (await _decide(store, _ask()))[0].allowed
        assert len(server.peers) == 2
        with pytest.raises(StoreUnavailable):
            await waiting
        clock.advance(seconds=3)
        assert (await _decide(store, _ask()))[0].allowed
        assert len(server.peers) == 2


async def test_what_was_let_through_meanwhile_is_not_told_afterwards() -> None:
    """It would be a call each, at once, to a server that has just come back."""
    config = PolicyConfig.model_validate(
        {"limit": "5/day per all", "algorithm": "sliding_window_log", "count_refused": True}
    )
    compiled = compile_policy("pay", config, PolicyMetrics())
    rules = compile_plan(
        RouteKeys("/pay", Sources()), ["pay"], {"pay": config}, {"pay": compiled}
    ).rules
    question = Ask((rules[0].limit,), ("k",), 1, 0)
    async with _served() as server:
        url = f"ratio://127.0.0.1:{server.port}"
        store = open_store(url, domain="shop", deadline_us=PATIENCE_US)
        decider = Decider(
            store, deadline_us=PATIENCE_US, share=None, max_waiting=1, metrics=StoreMetrics()
        )
        await decider.start()
        server.instead = fail(grpc.StatusCode.UNKNOWN, "redis is down")
        outcome = decider.decide(question, rules)
        assert not isinstance(outcome, Outcome)
        assert (await outcome).alone
        server.instead = None
        asked = len(server.asked)
        outcome = decider.decide(question, rules)
        assert not isinstance(outcome, Outcome)
        assert not (await outcome).alone
        await decider.aclose()
        assert len(server.asked) == asked + 1


@pytest.mark.parametrize("url", ["ratio://", "ratio:///x"])
def test_a_url_without_a_host_is_an_error(url: str) -> None:
    """There is no server that one could mean."""
    with pytest.raises(ValueError, match="host"):
        RatioStore(url, domain="shop")
