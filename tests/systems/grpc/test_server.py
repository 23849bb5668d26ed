"""The gRPC server of front ends: health, reflection, bounds, and its end."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from gateway.config.models.gateway import Address
from gateway.systems.grpc.calls import Context
from gateway.systems.grpc.ports import ServingOptions
from gateway.systems.grpc.protobuf import Messages
from gateway.systems.grpc.reflection import MAX_STREAMS
from gateway.systems.grpc.server import Bounds, GrpcServer, Service
from tests.grpc_engine import port_of
from tests.servers import until

FIELD = FieldDescriptorProto(
    name="text",
    number=1,
    type=FieldDescriptorProto.TYPE_STRING,
    label=FieldDescriptorProto.LABEL_OPTIONAL,
)
METHOD = MethodDescriptorProto(name="Say", input_type=".try.Text", output_type=".try.Text")
MESSAGES = Messages(
    [
        FileDescriptorProto(
            name="echo.proto",
            package="try",
            syntax="proto3",
            message_type=[DescriptorProto(name="Text", field=[FIELD])],
            service=[ServiceDescriptorProto(name="Echo", method=[METHOD])],
        )
    ]
)
TEXT = MESSAGES["try.Text"]
SAY = "/try.Echo/Say"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LIST: Any = health_pb2.HealthListRequest  # type: ignore[attr-defined]  # newer than its stubs


async def _say(data: bytes, context: Context) -> bytes:
    return bytes(TEXT(text=TEXT.FromString(data).text + "!").SerializeToString())


Say = Callable[[bytes, Context], Awaitable[bytes]]


@asynccontextmanager
async def _served(
    say: Say = _say,
    bounds: Bounds | None = None,
    malformed: Callable[[], None] = lambda: None,
    is_able: Callable[[], bool] = lambda: True,
) -> AsyncIterator[tuple[GrpcServer, int]]:
    described = Service("try.Echo", {"Say": say}, MESSAGES.files, ("echo",))
    server = GrpcServer([described], bounds or Bounds(), malformed, is_able)
    port = port_of(await server.start(ServingOptions(Address("127.0.0.1", 0))))
    try:
        yield server, port
    finally:
        await server.drain(0)


def _channel(port: int, *options: tuple[str, int]) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=list(options))


def _unary(
    channel: grpc.aio.Channel, method: str
) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(method)


def _health(channel: grpc.aio.Channel) -> Any:
    """A stub, whose methods are made at run time."""
    return health_pb2_grpc.HealthStub(channel)


async def test_a_call_is_answered_with_what_the_method_says() -> None:
    """Bytes go in, bytes come out."""
    async with _served() as (_, port), _channel(port) as channel:
        assert await _unary(channel, SAY)(b"\x0a\x02hi") == b"\x0a\x03hi!"


async def test_what_is_no_message_is_an_internal_error_and_is_counted() -> None:
    """As with any gRPC server; the connection persists."""
    seen: list[int] = []
    async with _served(malformed=lambda: seen.append(1)) as (_, port), _channel(port) as channel:
        call = _unary(channel, SAY)
        for bad in (b"\x0a\x05hi", b"\x0a\x01\xff"):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call(bad)
            assert error.value.code() is grpc.StatusCode.INTERNAL
            assert error.value.details() == "the request cannot be read"
        assert len(seen) == 2
        assert await call(b"") == b"\x0a\x01!"


@pytest.mark.parametrize(
    "method",
    [
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.Health/List",
        "grpc.health.v1.Health/Watch",
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_what_is_no_message_is_an_internal_error_of_every_service(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No client can fill the log with it."""
    seen: list[int] = []
    async with _served(malformed=lambda: seen.append(1)) as (_, port), _channel(port) as channel:
        call: Any = channel.stream_stream(f"/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await anext(aiter(call(iter([b"\xff\xff"]))))
        assert error.value.code() is grpc.StatusCode.INTERNAL
        assert error.value.details() == "the request cannot be read"
        assert len(seen) == 1
    assert not caplog.text


async def test_a_method_that_is_not_there_is_unimplemented() -> None:
    """Of the service, and of another."""
    async with _served() as (_, port), _channel(port) as channel:
        for method in ("/try.Echo/Sing", "/else/Say"):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await _unary(channel, method)(b"")
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_port_that_is_taken_is_an_error_of_the_system() -> None:
    """With the reason, and for each of the addresses that a name stands for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for host in ("127.0.0.1", "localhost", ""):
            server = GrpcServer([], Bounds())
            with pytest.raises(OSError, match="in use") as error:
                await server.start(ServingOptions(Address(host, taken.getsockname()[1])))
            assert error.value.errno == errno.EADDRINUSE
            await server.drain(0)


async def test_two_servers_do_not_share_a_port() -> None:
    """SO_REUSEPORT, which is grpcio's way, is off."""
    async with _served() as (_, port):
        other = GrpcServer([], Bounds())
        with pytest.raises(OSError, match="in use"):
            await other.start(ServingOptions(Address("127.0.0.1", port)))
        await other.drain(0)


async def test_every_address_is_listened_on_where_no_host_is_named() -> None:
    """As `:50051` means."""
    server = GrpcServer([Service("try.Echo", {"Say": _say}, MESSAGES.files)], Bounds())
    port = port_of(await server.start(ServingOptions(Address("", 0))))
    assert port
    async with _channel(port) as channel:
        assert await _unary(channel, SAY)(b"") == b"\x0a\x01!"
    await server.drain(1)


async def test_health_is_told_of_the_server_and_of_each_service() -> None:
    """Also under its other names; and no other service is reported."""
    able = [True]
    async with _served(is_able=lambda: able[0]) as (_, port), _channel(port) as channel:
        health = _health(channel)
        for name in ("", "try.Echo", "grpc.health.v1.Health", "echo"):
            able[0] = True
            request = health_pb2.HealthCheckRequest(service=name)
            assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
            able[0] = False
            answer = await health.Check(request)
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await health.Check(health_pb2.HealthCheckRequest(service="other"))
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_may_be_asked_of_all_services_at_once() -> None:
    """The method is in what reflection shows, so it is there."""
    able = True
    async with _served(is_able=lambda: able) as (_, port), _channel(port) as channel:
        for able in (True, False):
            answer = await _health(channel).List(LIST())
            status = "SERVING" if able else "NOT_SERVING"
            wanted = health_pb2.HealthCheckResponse(status=status)
            assert dict(answer.statuses) == dict.fromkeys(
                ("", "echo", "grpc.health.v1.Health", "try.Echo"), wanted
            )


async def test_every_method_that_reflection_shows_is_there() -> None:
    """A client that reads the list can call them."""
    async with _served() as (_, port):

        def methods() -> list[str]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                found = ProtoReflectionDescriptorDatabase(channel)
                pool = DescriptorPool(found)
                services = [pool.FindServiceByName(name) for name in found.get_services()]
            return [
                f"/{one.full_name}/{method}" for one in services for method in one.methods_by_name
            ]

        names = await asyncio.to_thread(methods)
        assert len(names) == 6
        async with _channel(port) as channel:
            for name in names:
                method: Any = channel.stream_stream(name)
                assert await method(iter([b"\xff\xff"])).code() is grpc.StatusCode.INTERNAL, name


async def test_who_watches_is_told_of_every_change_and_let_go_at_the_end() -> None:
    """A watch that stays open holds up no end."""
    able = [True]
    async with _served(is_able=lambda: able[0]) as (server, port), _channel(port) as channel:
        watch = _health(channel).Watch(health_pb2.HealthCheckRequest())
        told = [(await watch.read()).status]
        able[0] = False
        told.append((await watch.read()).status)
        able[0] = True
        told.append((await watch.read()).status)
        async with asyncio.timeout(10):
            await server.drain(60)
        told.append((await watch.read()).status)
        assert told == [1, 2, 1, 2]
        assert await watch.read() is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK


async def test_who_watches_what_is_not_there_is_told_so_and_stays() -> None:
    """As the health protocol requires: the service may appear."""
    async with _served() as (_, port), _channel(port) as channel:
        request = health_pb2.HealthCheckRequest(service="other")
        watch = _health(channel).Watch(request)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_reflection_describes_every_service_and_a_call_can_be_made_from_it() -> None:
    """The client knows only the messages that the server describes."""
    async with _served() as (_, port):

        def converse() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                found = ProtoReflectionDescriptorDatabase(channel)
                assert sorted(found.get_services()) == [
                    "grpc.health.v1.Health",
                    "grpc.reflection.v1.ServerReflection",
                    "grpc.reflection.v1alpha.ServerReflection",
                    "try.Echo",
                ]
                pool = DescriptorPool(found)
                for name in found.get_services():
                    assert pool.FindServiceByName(name).full_name == name
                method = pool.FindServiceByName("try.Echo").methods_by_name["Say"]
                taken: Any = GetMessageClass(method.input_type)
                given: Any = GetMessageClass(method.output_type)
                call: Any = channel.unary_unary(SAY, taken.SerializeToString, given.FromString)
                assert call(taken(text="hi")).text == "hi!"

        await asyncio.to_thread(converse)


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("try.Echo", b"echo.proto"),
        ("try.Echo.Say", b"echo.proto"),
        ("try.Text.text", b"echo.proto"),
        ("grpc.health.v1.Health.Check", b"health.proto"),
        ("grpc.reflection.v1.ServerReflection.ServerReflectionInfo", b"reflection.proto"),
        ("try.Echo.Sing", b"not found"),
        ("Echo.Say", b"not found"),
        ("", b"not found"),
    ],
)
async def test_reflection_finds_whatever_has_a_full_name(symbol: str, file: bytes) -> None:
    """Methods as well, which load generators ask for; the answer names the host of its question."""
    async with _served() as (_, port), _channel(port) as channel:
        question = reflection_pb2.ServerReflectionRequest(host="h", file_containing_symbol=symbol)
        method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call: Any = channel.stream_stream(method)
        answer = await anext(aiter(call(iter([question.SerializeToString()]))))
        assert file in answer
        assert reflection_pb2.ServerReflectionResponse.FromString(answer).valid_host == "h"


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_is_there_in_both_versions_and_ends_with_the_server(version: str) -> None:
    """A client that keeps its questions open holds up no end."""
    async with _served() as (server, port), _channel(port) as channel:
        method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        call: Any = channel.stream_stream(method)()
        await call.write(b"\x3a\x01*")
        assert b"try.Echo" in await call.read()
        async with asyncio.timeout(10):
            await server.drain(60)
        assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize("asked", [0, 1])
async def test_reflection_that_is_asked_nothing_ends(asked: int) -> None:
    """Before the first question or after it; or clients could keep all calls that there may be."""
    # What is asked comes in this time.
    bounds = Bounds(request_us=1_000_000)
    async with _served(bounds=bounds) as (_, port), _channel(port) as channel:
        call: Any = channel.stream_stream(REFLECTION)()
        for _ in range(asked):
            await call.write(b"\x3a\x01*")
            assert b"try.Echo" in await call.read()
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await call.details() == "the request did not come in time"


async def test_reflection_leaves_calls_for_others(caplog: pytest.LogCaptureFixture) -> None:
    """However often reflection is called."""
    bounds = Bounds(calls=MAX_STREAMS + 1)
    async with _served(bounds=bounds) as (_, port), _channel(port) as channel:
        calls: list[Any] = [channel.stream_stream(REFLECTION)() for _ in range(MAX_STREAMS)]
        for call in calls:
            await call.write(b"\x3a\x01*")
            assert b"try.Echo" in await call.read()
        more: Any = channel.stream_stream(REFLECTION)()
        assert await more.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await more.details() == "too many ask already"
        assert await _unary(channel, SAY)(b"\x0a\x02hi") == b"\x0a\x03hi!"
        calls.pop().cancel()
        again = await _until_taken(channel)
        assert b"try.Echo" in again
    assert not caplog.text


class _Held:
    """Answers a call when it may, and shows what becomes of it meanwhile."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, data: bytes, context: Context) -> bytes:
        """Say what was said."""
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return data


async def _until_taken(channel: grpc.aio.Channel) -> bytes:
    """What reflection answers when it has a place again."""
    async with asyncio.timeout(10):
        while True:
            method: Any = channel.stream_stream(REFLECTION)
            with suppress(grpc.aio.AioRpcError):
                return bytes(await anext(aiter(method(iter([b"\x3a\x01*"])))))


async def test_a_call_under_way_may_end_and_no_other_is_taken() -> None:
    """The end waits for it; later calls are refused, and can go to another server."""
    say = _Held()

    async with _served(say) as (server, port), _channel(port) as channel:
        call = _unary(channel, SAY)(b"\x0a\x02hi")
        await say.begun.wait()
        draining = asyncio.ensure_future(server.drain(60))
        await until(lambda: _is_refused(port))
        # Until it has heard of the end, grpcio answers `CANCELLED` to what it sends.
        await until(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
        # One that knows nothing yet, and one that has heard of the end.
        async with _channel(port) as late:
            for client in (late, channel):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await _unary(client, SAY)(b"")
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not draining.done()
        say.may_end.set()
        assert await call == b"\x0a\x02hi"
        await draining


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


async def test_the_end_waits_for_a_moment_in_which_no_call_begins() -> None:
    """Those that come in its first moments are answered and not cut off."""
    # As long as a busy machine may take to bring a call.
    bounds = Bounds(quiet_us=2_000_000)
    async with _served(bounds=bounds) as (server, port), _channel(port) as channel:
        call = _unary(channel, SAY)
        await call(b"")
        draining = asyncio.ensure_future(server.drain(60))
        await asyncio.sleep(0)
        assert await call(b"\x0a\x02hi") == b"\x0a\x03hi!"
        await draining


@pytest.mark.parametrize("method", [SAY, "/grpc.health.v1.Health/Check"])
async def test_a_request_that_has_begun_and_never_comes_does_not_hold_up_the_end(
    method: str,
) -> None:
    """Its call is redirected to another server."""
    async with _served() as (server, port), _channel(port) as channel:
        begun: Any = channel.stream_unary(method)()
        await _unary(channel, SAY)(b"")
        async with asyncio.timeout(20):
            await server.drain(60)
        assert await begun.code() is grpc.StatusCode.UNAVAILABLE
        assert await begun.details() == "the server ends"


@pytest.mark.parametrize("method", [SAY, "/grpc.health.v1.Health/Check"])
async def test_a_request_that_takes_too_long_to_come_is_refused(method: str) -> None:
    """Otherwise clients could use up all permitted calls; others are answered meanwhile."""
    # The whole request comes in this time.
    bounds = Bounds(request_us=1_000_000)
    async with _served(bounds=bounds) as (_, port), _channel(port) as channel:
        begun: Any = channel.stream_unary(method)()
        assert await begun.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await begun.details() == "the request did not come in time"
        assert await _unary(channel, SAY)(b"\x0a\x02hi") == b"\x0a\x03hi!"


async def test_a_request_that_ends_before_its_message_is_an_internal_error() -> None:
    """Its client is not left to wait."""
    async with _served() as (_, port), _channel(port) as channel:
        call: Any = channel.stream_unary(SAY)(iter([]))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert error.value.code() is grpc.StatusCode.INTERNAL


async def test_a_client_that_leaves_before_its_message_leaves_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Or clients could fill it."""
    async with _served() as (_, port), _channel(port) as channel:
        calls: list[Any] = [channel.stream_unary(SAY)() for _ in range(50)]
        await _unary(channel, SAY)(b"")
        for call in calls:
            call.cancel()
        await _unary(channel, SAY)(b"")
    assert not caplog.text


async def test_a_client_that_is_frozen_does_not_hold_up_the_end() -> None:
    """It does not answer the PING that acknowledges the end."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    async with _served() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(preface)
        assert await reader.read(1024)
        async with asyncio.timeout(10):
            await server.drain(60)
        writer.close()


async def test_a_call_that_takes_too_long_at_the_end_is_cut_off() -> None:
    """The end is bounded."""
    say = _Held()

    async with _served(say) as (server, port), _channel(port) as channel:
        call = _unary(channel, SAY)(b"")
        await say.begun.wait()
        assert server.under_way == 1
        async with asyncio.timeout(10):
            assert await server.drain(0.05) == 1
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        await say.cancelled.wait()


async def test_a_connection_that_is_old_is_left_for_a_new_one() -> None:
    """Its client is asked to reconnect; calls in flight end, or are cut off after the grace."""
    say = _Held()

    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    bounds = Bounds(age_us=200_000, grace_us=300_000)
    async with _served(say, bounds) as (_, port), _channel(port) as channel:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(preface)
        async with asyncio.timeout(20):
            assert b"max_age" in await reader.read()
        writer.close()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await _unary(channel, SAY)(b"")
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        say.may_end.set()
        assert await _unary(channel, SAY)(b"x") == b"x"


async def test_a_client_that_leaves_ends_its_call() -> None:
    """The pending call learns that its client has left."""
    say = _Held()

    async with _served(say) as (_, port), _channel(port) as channel:
        call = _unary(channel, SAY)(b"")
        await say.begun.wait()
        call.cancel()
        await say.cancelled.wait()


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_that_is_too_long_is_refused(compression: grpc.Compression) -> None:
    """By its length after decompression, or a few bytes could become any number."""
    data = bytes(TEXT(text="a" * 5_000).SerializeToString())
    async with _served(bounds=Bounds(message_bytes=4_000)) as (_, port), _channel(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await _unary(channel, SAY)(data, compression=compression)
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await _unary(channel, SAY)(b"\x0a\x02hi", compression=compression)


async def test_no_more_calls_are_under_way_than_there_may_be() -> None:
    """One more is refused immediately, with the reason."""
    say = _Held()

    async with _served(say, Bounds(calls=1)) as (_, port), _channel(port) as channel:
        call = _unary(channel, SAY)(b"\x0a\x01a")
        await say.begun.wait()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await _unary(channel, SAY)(b"")
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        say.may_end.set()
        assert await call == b"\x0a\x01a"


async def test_a_connection_that_says_nothing_is_closed() -> None:
    """A client that does not start HTTP/2 in time is disconnected."""
    async with _served(bounds=Bounds(handshake_us=100_000)) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(20):
            while await reader.read(1024):
                pass
        writer.close()


async def test_a_new_connection_may_have_any_time() -> None:
    """More milliseconds than grpcio takes as well: 60 days."""
    async with (
        _served(bounds=Bounds(handshake_us=60 * 86_400 * 1_000_000)) as (_, port),
        _channel(port) as channel,
    ):
        assert await _unary(channel, SAY)(b"") == b"\x0a\x01!"


async def test_a_failure_of_a_method_is_logged_and_the_client_is_not_told_what_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is no business of a client."""

    async def say(data: bytes, context: Context) -> bytes:
        raise ValueError("secret")

    async with _served(say) as (_, port), _channel(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await _unary(channel, SAY)(b"")
        assert error.value.code() is grpc.StatusCode.INTERNAL
        assert error.value.details() == "the server failed"
        assert "secret" in caplog.text


async def test_a_method_may_end_a_call_with_a_status_of_its_own() -> None:
    """Which is no failure."""

    async def say(data: bytes, context: Context) -> bytes:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "come back later")

    async with _served(say) as (_, port), _channel(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await _unary(channel, SAY)(b"")
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error.value.details() == "come back later"
