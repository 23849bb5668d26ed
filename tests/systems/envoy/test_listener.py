"""Envoy's rate limit service as gRPC clients see it: errors, tools, counters and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from gateway.base.errors import StoreUnavailable
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.address import Address, UnixAddress
from gateway.limiter.decider import Decider
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store
from gateway.stores.memory.store import MemoryStore
from gateway.stores.scripted import Fail, ScriptedHold, ScriptedStore
from gateway.systems.envoy import listener as envoy_rls
from gateway.systems.envoy import rules as envoy_rls_rules
from gateway.systems.envoy.listener import MAX_DESCRIPTORS, make
from gateway.systems.envoy.messages import (
    METHOD,
    OK,
    OVER_LIMIT,
    SERVICE,
    Descriptor,
    DescriptorStatus,
    EnvoyStatus,
    Override,
    write_question,
)
from gateway.wiring.limiter import decider_of, store_of
from tests.conftest import StartGateway
from tests.envoy_rls import PATH, Asked, call, codes, config_of, question, serving, still_clock
from tests.processes import free_port
from tests.servers import RedisServer, until
from tests.systems.context import context_of

A = {"a": "1"}
LIMITS = """
    { match: { a: "*" }, limit: 2/24h }
    { match: { b: "*" }, limit: 1/24h, shadow: true }
"""
DEADLINE = "store: { url: 'memory://', deadline: 5s }"
CONFIG = config_of(LIMITS)
PATIENT = config_of(LIMITS, more=DEADLINE)


class Served:
    """A front end that runs in this process, with a client.

    Attributes:
        channel: the client's.
        address: where it listens.
        metrics: all counters.
        decider: what asks the store.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        address: Address | UnixAddress,
        metrics: GatewayMetrics,
        decider: Decider,
    ) -> None:
        self.channel = channel
        self.address = address
        self.metrics = metrics
        self.decider = decider

    async def ask(self, *descriptors: Asked) -> int:
        """The code of the answer."""
        return (await call(self.channel, *descriptors)).code

    @property
    def answers(self) -> dict[str, int]:
        """How many calls were answered how."""
        return {what: count for (_, what), count in self.metrics.frontend("rls").answers.items()}


@asynccontextmanager
async def served(
    config: GatewayConfig = CONFIG, store: Store | None = None
) -> AsyncIterator[Served]:
    """A front end of a configuration, on a store."""
    store = store or MemoryStore(clock=still_clock())
    metrics = GatewayMetrics()
    decider = decider_of(config, store, metrics.store("main"))
    await decider.start()
    ground = context_of(config, decider, store, metrics)
    front = make("rls", config.listeners[0], ground)
    await front.start()
    try:
        async with grpc.aio.insecure_channel(str(front.address)) as channel:
            yield Served(channel, front.address, metrics, decider)
    finally:
        await front.drain(0)
        await decider.aclose()


async def failure(channel: grpc.aio.Channel, *descriptors: Asked, domain: str = "shop") -> str:
    """What a call is refused with: the status and its words."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await method(write_question(question(*descriptors, domain=domain)))
    return f"{error.value.code().name}: {error.value.details()}"


async def test_a_call_is_answered_and_counted() -> None:
    """By what came of it."""
    async with served() as service:
        assert [await service.ask(A) for _ in range(3)] == [OK, OK, OVER_LIMIT]
        assert [await service.ask({"b": "1"}) for _ in range(2)] == [OK, OK]
        assert service.answers == {"ok": 3, "over_limit": 1, "shadow": 1}


@pytest.mark.parametrize("name", ["", "ratelimit", SERVICE])
async def test_health_is_asked_for_by_the_name_that_envoys_own_service_has(name: str) -> None:
    """Clusters in the field ask for `ratelimit`; others for its full name, or for none."""
    async with served() as service:
        health: Any = health_pb2_grpc.HealthStub(service.channel)
        request = health_pb2.HealthCheckRequest(service=name)
        assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(request)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING


async def test_a_question_without_domain_or_descriptors_is_an_error() -> None:
    """The same as of Envoy's own service."""
    async with served() as service:
        said = await failure(service.channel, A, domain="")
        assert said == "UNKNOWN: rate limit domain must not be empty"
        said = await failure(service.channel)
        assert said == "UNKNOWN: rate limit descriptor list must not be empty"
        assert service.answers == {"error": 2}


async def test_a_domain_without_rules_is_told_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is not limited, which a domain that is misspelt does not show; its text is bounded."""
    async with served() as service:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary(PATH)
        await service.ask(A)
        assert not caplog.text
        for domain in ("shpo" + "\n" * 1000, "another"):
            await method(write_question(question(A, domain=domain)))
        assert service.answers == {"ok": 3}
    (record,) = (one for one in caplog.records if one.name == "gateway.systems.envoy.listener")
    assert "the domain 'shpo\\n" in record.getMessage()
    assert len(record.getMessage()) < 500


async def test_a_question_too_large_is_an_error() -> None:
    """By its descriptors, and by its bytes."""
    async with served() as service:
        said = await failure(service.channel, *[A] * (MAX_DESCRIPTORS + 1))
        assert said == f"INVALID_ARGUMENT: there are more than {MAX_DESCRIPTORS} descriptors"
        said = await failure(service.channel, {str(number): "x" for number in range(33)})
        assert said == "INVALID_ARGUMENT: a descriptor has more than 32 entries"
        said = await failure(service.channel, {"a": "x" * 70_000})
        assert said.startswith("RESOURCE_EXHAUSTED")
        assert await service.ask(*[{"c": "1"}] * MAX_DESCRIPTORS) == OK


async def test_a_limit_of_its_own_that_cannot_be_read_is_an_error() -> None:
    """There is no such unit."""
    async with served() as service:
        said = await failure(service.channel, Descriptor((("a", "1"),), Override(1, 9)))
        assert said == "INVALID_ARGUMENT: the unit of a descriptor's own limit is not known"


async def test_ever_new_limits_of_their_own_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known are taken all the same."""
    monkeypatch.setattr(envoy_rls_rules, "MAX_OVERRIDES", 1)
    first, second = (Descriptor((("a", "1"),), Override(number, 4)) for number in (5, 6))
    async with served() as service:
        assert await service.ask(first) == OK
        said = await failure(service.channel, second)
        assert said == "RESOURCE_EXHAUSTED: descriptors bring too many different limits"
        assert await service.ask(first) == OK


async def test_plans_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """And created again, with the same counts."""
    monkeypatch.setattr(envoy_rls, "KNOWN_MAX", 2)
    asked = [{"a": str(number)} for number in range(5)]
    async with served() as service:
        assert {await service.ask(one) for one in asked * 2} == {OK}
        assert {await service.ask(one) for one in asked} == {OVER_LIMIT}


async def test_what_is_no_question_is_an_error_and_is_counted() -> None:
    """The connection persists."""
    async with served() as service:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary(PATH)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await method(b"\xff")
        assert error.value.code() is grpc.StatusCode.INTERNAL
        assert service.metrics.frontend("rls").malformed == {"message": 1}
        assert await service.ask(A) == OK


async def test_tools_find_the_service_by_reflection() -> None:
    """And ask it knowing nothing else."""
    async with served() as service:
        target = str(service.address)

        def ask() -> tuple[list[str], int, int]:
            with grpc.insecure_channel(target) as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                pool = DescriptorPool(database)
                described = pool.FindServiceByName(SERVICE).FindMethodByName(METHOD)
                request: Any = GetMessageClass(described.input_type)()
                request.domain = "shop"
                request.descriptors.add().entries.add(key="a", value="1")
                method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
                answer: Any = GetMessageClass(described.output_type).FromString(
                    method(request.SerializeToString())
                )
                return (
                    list(database.get_services()),
                    answer.overall_code,
                    answer.statuses[0].limit_remaining,
                )

        names, code, remaining = await asyncio.to_thread(ask)
        assert SERVICE in names
        assert (code, remaining) == (OK, 1)


async def test_who_leaves_has_spent_all_the_same() -> None:
    """Envoy admits a request without a timely answer, so it has to count."""
    store = ScriptedStore(still_clock())
    may_go = asyncio.Event()
    store.then(ScriptedHold(may_go))
    async with served(PATIENT, store) as service:
        asking = asyncio.create_task(service.ask(A))
        await until(lambda: len(store.asked) == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        policy = service.metrics.policies["shop/a=*"]
        may_go.set()
        await until(lambda: policy.passed == 1)
        assert [await service.ask(A) for _ in range(2)] == [OK, OVER_LIMIT]
        assert not store.given_back


async def test_what_was_spent_in_vain_is_given_back_by_a_store_elsewhere() -> None:
    """Of descriptors that cost differently, and could not be asked about at once."""
    store = ScriptedStore(still_clock())
    async with served(PATIENT, store) as service:
        dear = Descriptor((("a", "1"),), hits=3)
        assert await service.ask({"a": "2"}, dear) == OVER_LIMIT
        assert [len(batch) for batch in store.asked] == [2], "in one turn"
        await until(lambda: len(store.given_back) == 1)
        assert [ask.keys for ask, _ in store.given_back] == [("a=2",)]
        assert (await call(service.channel, {"a": "2"})).statuses[0].remaining == 1


@pytest.mark.parametrize(
    ("word", "first", "second"),
    [
        ("open", EnvoyStatus(OK), EnvoyStatus(OK)),
        (
            "closed",
            EnvoyStatus(OVER_LIMIT, DescriptorStatus(2, 4)),
            EnvoyStatus(OVER_LIMIT, DescriptorStatus(2, 4)),
        ),
        (
            "local",
            EnvoyStatus(OK, DescriptorStatus(2, 4), 0, 86_400),
            EnvoyStatus(OVER_LIMIT, DescriptorStatus(2, 4), 0, 86_400),
        ),
    ],
)
async def test_policies_have_the_word_while_the_store_is_away(
    word: str, first: EnvoyStatus, second: EnvoyStatus
) -> None:
    """Open admits, closed refuses, local decides alone by its share of the limit."""
    rule = f'{{ match: {{ a: "*" }}, limit: 2/24h, on_store_error: {word} }}'
    store = ScriptedStore()
    store.gateways = 2
    store.then(*[Fail(StoreUnavailable("refused"))] * 4)
    async with served(config_of(rule, more=DEADLINE), store) as service:
        replies = [await call(service.channel, A) for _ in range(2)]

    assert [reply.statuses for reply in replies] == [[first], [second]]


async def test_a_port_that_another_has_is_an_error() -> None:
    """The error names it."""
    async with served() as service:
        other = config_of(LIMITS).listeners[0].model_copy(update={"bind": service.address})
        metrics = GatewayMetrics()
        ground = context_of(CONFIG, service.decider, MemoryStore(), metrics)
        with pytest.raises(OSError, match="in use"):
            await make("other", other, ground).start()


def _gateway(start_gateway: StartGateway, store: str, limit: str) -> int:
    port = free_port()
    rules = f"[{{ match: {{ a: '*' }}, limit: {limit} }}]"
    start_gateway(
        f"""
store: {{ url: "{store}", deadline: 5s }}
listeners:
  - envoy_rls: {{ domains: {{ shop: {rules} }} }}
    bind: 127.0.0.1:{port}
"""
    )
    return port


async def test_two_gateways_on_one_redis_let_exactly_the_limit_through(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """However many ask at a time, of either."""
    limit, calls = 100, 400
    ports = [
        await asyncio.to_thread(_gateway, start_gateway, redis_server.url, f"{limit}/24h")
        for _ in range(2)
    ]
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as first,
        grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}") as second,
    ):
        replies = await asyncio.gather(
            *(call((first, second)[number % 2], A) for number in range(calls))
        )
        assert sum(reply.code == OK for reply in replies) == limit
        both = await asyncio.gather(*(call(one, A, {"a": "2"}) for one in (first, second) * 20))
        assert {reply.code for reply in both} == {OVER_LIMIT}
        assert (await call(first, {"a": "2"})).statuses[0].remaining == limit - 1


def test_redis_gives_back_as_well(redis_server: RedisServer) -> None:
    """By whichever gateway the refund comes."""
    store = f"store: {{ url: '{redis_server.url}', deadline: 5s }}"
    rules = """
        { match: { a: "*" }, limit: 3/24h }
        { match: { a: "*", b: "1" }, limit: 3/30d, algorithm: fixed_window }
        { match: { a: "*", b: "2" }, limit: 3/30d, algorithm: sliding_window_counter }
    """
    config = config_of(rules, more=store)
    makers = [store_of(config, GatewayMetrics()) for _ in range(2)]

    async def ask() -> list[int]:
        found = []
        async with (
            serving(config, makers[0]) as first,
            serving(config, makers[1]) as second,
        ):
            for more in ((), (("b", "1"),), (("b", "2"),)):
                asked = Descriptor((("a", "1"), *more), hits=3)
                refund = asked._replace(hits=2, is_refund=True)
                assert codes(await first.ask(asked)) == (OK, [OK])
                assert (await second.ask(refund)).statuses[0].remaining == 2
                reply = await second.ask(asked._replace(hits=0))
                found.append(reply.statuses[0].remaining)
        return found

    assert asyncio.run(ask()) == [2, 2, 2]


async def test_a_gateway_of_two_workers_serves_it_in_the_first(start_gateway: StartGateway) -> None:
    """Whose counts are the limiter's."""
    port = free_port()
    rules = "[{ match: { a: '*' }, limit: 3/24h }, { match: { b: '*' }, limit: 3/24h }]"
    await asyncio.to_thread(
        start_gateway,
        f"""
server: {{ workers: 2 }}
{DEADLINE}
listeners:
  - envoy_rls: {{ domains: {{ shop: {rules} }} }}
    bind: 127.0.0.1:{port}
""",
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        replies = [await call(channel, A, {"b": "1"}) for _ in range(4)]
        assert [reply.code for reply in replies] == [OK, OK, OK, OVER_LIMIT]
