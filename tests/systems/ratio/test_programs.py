"""Programs of questions to ratio's service, held to what ratio promises, on every kind of store."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from tests.conftest import StartGateway
from tests.processes import free_port
from tests.ratio import OK, PATH, Model, read_files_first, request, serving
from tests.servers import RedisServer

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US

TEXTS: Final = st.sampled_from(("", "a", "b", "a-b", "b-a"))
QUESTIONS: Final = st.tuples(TEXTS, TEXTS)
PAUSES: Final = st.one_of(
    st.just(0),
    st.just(1),
    st.sampled_from((MINUTE_US - 1, MINUTE_US, MINUTE_US + 1)),
    st.integers(0, 2 * MINUTE_US),
)
PROGRAMS: Final = st.lists(st.tuples(PAUSES, QUESTIONS), max_size=40)


@pytest.fixture(scope="module", autouse=True)
def _files_are_read() -> None:
    read_files_first()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all programs, each of which has names of its own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@settings(max_examples=40)
@given(st.integers(1, 4), st.booleans(), PROGRAMS)
async def test_in_memory_every_answer_is_that_of_the_algorithm(
    quantity: int, counts_refused: bool, program: Sequence[tuple[int, tuple[str, str]]]
) -> None:
    """Whatever is asked, after whatever pauses; hits of one moment are apart."""
    clock = ManualClock(10**15)
    model = Model(quantity, MINUTE_US, clock, counts_refused=counts_refused)
    ratio = f"{{limit: {quantity}/m, count_refused: {str(counts_refused).lower()}}}"
    async with serving(ratio, clock) as service:
        for pause_us, question in program:
            clock.advance(us=pause_us)
            assert await service.passes(*question) == model.passes(*question)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 4), st.lists(st.lists(QUESTIONS, max_size=12), max_size=5))
async def test_on_redis_no_more_and_no_fewer_pass_than_the_algorithm_lets_through(
    redis: RedisServer,
    quantity: int,
    rounds: Sequence[Sequence[tuple[str, str]]],
) -> None:
    """Those of one round are concurrent, so it is not defined which of them pass."""
    model = Model(quantity, DAY_US, lambda: 0)
    redis.client().flushall()
    more = f"store: {{url: '{redis.url}', deadline: 5s}}"
    async with serving(f"{quantity}/d", redis.url, more) as service:
        for questions in rounds:
            answers = await asyncio.gather(*[service.passes(*one) for one in questions])
            for one in set(questions):
                asked = [index for index, other in enumerate(questions) if other == one]
                passed = sum(answers[index] for index in asked)
                assert passed == sum(model.passes(*one) for _ in asked)


def _listener(port: int, limit: str, store: str = "memory://") -> str:
    return (
        f"store: {{url: '{store}', deadline: 5s}}\n"
        f"listeners:\n  - ratio: {{limit: {limit}, on_store_error: closed}}\n"
        f"    bind: 127.0.0.1:{port}\n"
        "routes: {/: {respond: hello}}\n"
    )


async def test_two_gateways_on_one_redis_are_one_limiter(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """However many ask both at the same time: the sum is exact."""
    ports = [free_port(), free_port()]
    for port in ports:
        start_gateway(_listener(port, "30/d", redis_server.url))

    async def ask_all() -> list[bytes]:
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}") for port in ports]
        methods: list[grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]]
        methods = [channel.unary_unary(PATH) for channel in channels]

        async def ask(method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]) -> list[bytes]:
            return [await method(request()) for _ in range(10)]

        found = await asyncio.gather(*[ask(method) for method in methods * 3])
        for channel in channels:
            await channel.close()
        return [answer for answers in found for answer in answers]

    answers = await ask_all()
    assert (len(answers), answers.count(OK)) == (60, 30)


def test_a_client_that_knows_nothing_of_ratio_learns_all_by_reflection(
    start_gateway: StartGateway,
) -> None:
    """As grpcurl or grpc_cli would, on the real process and its real loop."""
    port = free_port()
    start_gateway(_listener(port, "1/d"))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        found = ProtoReflectionDescriptorDatabase(channel)
        assert "RateLimitService" in found.get_services()
        (method,) = DescriptorPool(found).FindServiceByName("RateLimitService").methods
        assert (method.name, method.full_name) == ("RateLimit", "RateLimitService.RateLimit")
        taken: Any = GetMessageClass(method.input_type)
        given_back: Any = GetMessageClass(method.output_type)
        call: Any = channel.unary_unary(PATH, taken.SerializeToString, given_back.FromString)
        names = given_back.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number
        question = taken(owner="my-awesome-service", resource="/v1/user/register")
        assert [names[call(question).code].name for _ in range(2)] == ["OK", "OVER_LIMIT"]


async def test_a_store_that_goes_and_comes_back_is_told_by_errors_and_health_checks(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """Errors while it is away, for as long as that is; then answers, by counts of before."""
    port = free_port()
    text = _listener(port, "2/d", redis_server.url).replace("deadline: 5s", "deadline: 100ms")
    start_gateway(text)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service="RateLimitService"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert await method(request()) == OK
        redis_server.freeze()
        for _ in range(8):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await method(request())
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        redis_server.thaw()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        answers = [await method(request(resource="/other")) for _ in range(2)]
        assert OK in answers


async def test_balancers_are_told_of_the_end_before_it_begins(start_gateway: StartGateway) -> None:
    """For `shutdown_delay` questions are answered, and health is NOT_SERVING."""
    port = free_port()
    delayed = "server: { shutdown_delay: 1s }\n" + _listener(port, "9/d")
    gateway = await asyncio.to_thread(start_gateway, delayed)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        gateway.server.signal(signal.SIGTERM)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        assert await method(request()) == OK
        assert await watch.read() is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK
    assert await asyncio.to_thread(gateway.server.process.wait, 10) == 0
