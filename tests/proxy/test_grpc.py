"""Calls of gRPC through the gateway: real clients and servers (grpcio), and raw frames.

The upstream is grpcio's own server; what it would not do is scripted (`http2_upstream`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from gateway.http.answer import problem
from gateway.proxy.grpc import RESOURCE_EXHAUSTED, grpc_reply
from tests.http2 import Http2Client, data
from tests.proxy.http2_upstream import Call
from tests.proxy.test_http2_upstreams import between
from tests.proxy.wire import Running, running
from tests.servers import until

METHOD = "/pkg.Echo/"
ALONE = (("grpc.use_local_subchannel_pool", 1),)
"""A connection of its own for each channel, which ends with it."""
GRPC = (("content-type", "application/grpc"), ("te", "trailers"))


@pytest.fixture(scope="module", autouse=True)
def _threads_of_grpcio() -> Iterator[None]:
    """Keep what grpcio shares among channels: its end waits, wherever the last of them is freed."""
    cygrpc: Any = import_module("grpc._cython.cygrpc")
    loop = asyncio.new_event_loop()
    # It wants one to be there, whose it is.
    asyncio.set_event_loop(loop)
    cygrpc.init_grpc_aio()
    asyncio.set_event_loop(None)
    yield
    cygrpc.shutdown_grpc_aio()
    loop.close()


def message(body: bytes) -> bytes:
    """A message as it is framed."""
    return b"\0" + struct.pack(">I", len(body)) + body


async def _unary(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    if request == b"slow":
        await asyncio.sleep(20)
    if request.startswith(b"fail "):
        await context.abort(grpc.StatusCode[request[5:].decode()], "as asked")
    context.set_trailing_metadata((("x-seen", str(len(request))),))
    return request.upper()


async def _down(request: bytes, _: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
    for number in range(int(request)):
        yield b"%d" % number


async def _up(requests: AsyncIterator[bytes], _: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return b",".join([request async for request in requests])


async def _both(
    requests: AsyncIterator[bytes], _: grpc.aio.ServicerContext[bytes, bytes]
) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.upper()


class GrpcUpstream:
    """A server of grpcio's, with the four kinds of calls."""

    def __init__(self) -> None:
        self.server = grpc.aio.server()
        methods: dict[str, Any] = {
            "Unary": grpc.unary_unary_rpc_method_handler(_unary),
            "Down": grpc.unary_stream_rpc_method_handler(_down),
            "Up": grpc.stream_unary_rpc_method_handler(_up),
            "Both": grpc.stream_stream_rpc_method_handler(_both),
        }
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("pkg.Echo", methods),)
        )
        self.health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self.port}"


def leave(run: Running) -> None:
    """Close the clients' connections: grpcio keeps one while a call of it is referenced."""
    proxy: Any = run.gateway._proxy
    for client in list(proxy._clients):
        client.break_off()


@asynccontextmanager
async def calls(
    folder: Path, complaint: str = "", **settings: Any
) -> AsyncIterator[tuple[Any, Running, GrpcUpstream]]:
    """A client of grpcio's, the gateway, and a server of grpcio's."""
    upstream = GrpcUpstream()
    await upstream.server.start()
    settings = {
        "listen": {"address": "127.0.0.1:0", "http2": True},
        **settings,
        "u": {"http2": True, **settings.pop("u", {})},
    }
    try:
        async with running(folder, upstream.url, complaint, **settings) as run:
            target = f"127.0.0.1:{run.gateway.addresses[0].port}"
            async with grpc.aio.insecure_channel(target, options=ALONE) as channel:
                yield channel, run, upstream
            leave(run)
    finally:
        await upstream.server.stop(None)


async def test_all_kinds_of_calls(tmp_path: Path) -> None:
    """Unary and streaming, with metadata and trailers, over one connection to the upstream."""
    async with calls(tmp_path) as (channel, run, _):
        call = channel.unary_unary(f"{METHOD}Unary")(b"hello", timeout=20)
        assert await call == b"HELLO"
        trailing: Any = await call.trailing_metadata()
        assert dict(trailing)["x-seen"] == "5"
        down = channel.unary_stream(f"{METHOD}Down")(b"500", timeout=20)
        assert [each async for each in down] == [b"%d" % number for number in range(500)]

        async def said() -> AsyncIterator[bytes]:
            for number in range(100):
                yield b"%d" % number

        up = channel.stream_unary(f"{METHOD}Up")(said(), timeout=20)
        assert await up == b",".join(b"%d" % number for number in range(100))
        both = channel.stream_stream(f"{METHOD}Both")(timeout=20)
        for word in (b"one", b"two", b"three"):
            await both.write(word)
            assert await both.read() == word.upper()
        await both.done_writing()
        assert await both.read() == grpc.aio.EOF
        assert await both.code() == grpc.StatusCode.OK
        assert run.upstream().metrics.connections == 1


async def test_errors_of_the_upstream(tmp_path: Path) -> None:
    """Status and message are the upstream's own."""
    async with calls(tmp_path) as (channel, _, _):
        for name in ("NOT_FOUND", "UNAVAILABLE", "INVALID_ARGUMENT"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"{METHOD}Unary")(f"fail {name}".encode(), timeout=20)
            assert (caught.value.code().name, caught.value.details()) == (name, "as asked")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"{METHOD}Nothing")(b"", timeout=20)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_large_messages(tmp_path: Path) -> None:
    """Three megabytes each way."""
    body = bytes(range(97, 122)) * (3_000_000 // 25)
    async with calls(tmp_path) as (channel, _, _):
        assert await channel.unary_unary(f"{METHOD}Unary")(body, timeout=20) == body.upper()


async def test_over_the_limit(tmp_path: Path) -> None:
    """RESOURCE_EXHAUSTED, with the time at which another call may pass."""
    route = {"limit": "2/h per ip"}
    async with calls(tmp_path, route=route) as (channel, run, _):
        unary = channel.unary_unary(f"{METHOD}Unary")
        assert [await unary(b"a", timeout=20) for _ in range(2)] == [b"A"] * 2
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(b"a", timeout=20)
        error = caught.value
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "Too many requests"
        metadata: Any = error.trailing_metadata()
        found = dict(metadata)
        assert 1_790_000 <= int(found["grpc-retry-pushback-ms"]) <= 1_800_000
        assert int(found["retry-after"]) * 1000 == int(found["grpc-retry-pushback-ms"])
        assert "ratelimit" in found
        assert run.gateway.metrics.routes["/**"].statuses == {200: 3}


@pytest.mark.parametrize(
    "on_limit",
    [{"jitter": "10%"}, {"status": 503}, {"body": "text"}, {"body": "throttlex"}, {"body": "none"}],
    ids=str,
)
async def test_every_refusal_says_the_same_in_both_fields(
    tmp_path: Path, on_limit: dict[str, Any]
) -> None:
    """Whatever HTTP clients are sent; nothing about limits tells a call to come back later."""
    policies = {"p": {"limits": ["2/h", "3 at once"], "on_limit": on_limit}}
    route = {"policies": ["p"], "error_pages": {}, "cors": "https://app.test"}

    async def serve(call: Call) -> None:
        await call.answer(b"ok")

    async with between(tmp_path, serve, policies=policies, route=route) as (one, _):
        client = await one.client()
        for _ in range(2):
            await _ask(client)
        more = (("accept", "text/html"), ("origin", "https://app.test"))
        heard = await _ask(client, *more)
        assert _grpc_status(heard) == (200, "8")
        assert (heard.body, heard.get("content-type")) == (b"", "application/grpc")
        seconds = int(heard.get("retry-after"))
        assert int(heard.get("grpc-retry-pushback-ms")) == seconds * 1000
        assert int(heard.get("x-ratelimit-reset")) >= seconds
        (exact,) = re.findall('"p-1";r=0;t=([0-9]+)', heard.get("ratelimit"))
        assert int(exact) <= seconds <= int(exact) * (1.1 if "jitter" in on_limit else 1)
        assert heard.get("access-control-allow-origin") == "https://app.test"


@pytest.mark.parametrize(
    ("seconds", "pushback"),
    [(1, "1000"), (2_147_483, "2147483000"), (2_147_484, "-1"), (30 * 86_400, "-1"), (None, "-1")],
)
def test_a_wait_that_does_not_fit_is_no_invitation(seconds: int | None, pushback: str) -> None:
    """A client reads 32 bits with a sign, and takes anything else for "never"."""
    fields = b"" if seconds is None else b"Retry-After: %d\r\n" % seconds
    reply = grpc_reply(problem(429, "Too many requests", fields=fields), RESOURCE_EXHAUSTED)
    assert f"Grpc-Retry-Pushback-Ms: {pushback}\r\n".encode() in reply.fields


async def test_without_credentials(tmp_path: Path) -> None:
    """UNAUTHENTICATED, with the challenge of a 401; with them, the call passes."""
    route = {"limit": "2/h per header:Authorization", "if_missing": "unauthorized"}
    async with calls(tmp_path, route=route) as (channel, _, _):
        unary = channel.unary_unary(f"{METHOD}Unary")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(b"a", timeout=20)
        error = caught.value
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        assert error.details() == "The request lacks what it is counted by: header:authorization"
        metadata: Any = error.trailing_metadata()
        assert dict(metadata)["www-authenticate"] == 'Bearer realm="/**"'
        credentials = (("authorization", "Bearer a"),)
        assert await unary(b"a", timeout=20, metadata=credentials) == b"A"


async def test_keyed_by_service_and_method(tmp_path: Path) -> None:
    """Routes are patterns of `/package.Service/Method`, and can be counted by path."""
    routes = {
        "/pkg.Echo/{method}": {"upstream": "u", "limit": "1/h per route"},
        "/grpc.health.v1.Health/**": {"upstream": "u"},
    }
    async with calls(tmp_path, routes=routes) as (channel, _, _):
        assert await channel.unary_unary(f"{METHOD}Unary")(b"a", timeout=20) == b"A"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"{METHOD}Unary")(b"a", timeout=20)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)).status == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/pkg.Other/Unary")(b"a", timeout=20)
        # There is no route.
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def _ask(client: Http2Client, *more: tuple[str, str], path: str = "/a.B/C") -> Any:
    stream = client.ask(path, *GRPC, *more, method="POST", body=message(b"x"))
    return await client.answer(stream)


def _grpc_status(heard: Any) -> tuple[int, str | None]:
    found = dict(heard.trailers) if heard.trailers else dict(heard.fields)
    return heard.status, found.get("grpc-status")


async def test_own_answers(tmp_path: Path) -> None:
    """Each is a head alone, with the status of gRPC that its cause has."""

    async def serve(call: Call) -> None:
        if call.get(":path") == "/a.B/Break":
            call.peer.reset()

    routes = {
        "/a.B/{method}": {"upstream": "u", "error_pages": {"5xx": {"html": "<p>sorry"}}},
        "/maintenance/**": {"respond": {"status": 503, "body": "later"}},
    }
    u = {"timeouts": {"first_byte": "100ms"}}
    async with between(tmp_path, serve, routes=routes, u=u) as (one, _):
        client = await one.client()
        assert _grpc_status(await _ask(client)) == (200, "4")
        assert _grpc_status(await _ask(client, path="/a.B/Break")) == (200, "14")
        assert _grpc_status(await _ask(client, path="/maintenance/X")) == (200, "14")
        assert _grpc_status(await _ask(client, path="/nothing/X")) == (200, "12")
        heard = await _ask(client, ("via", ", ".join(["1.1 sluice"] * 10)))
        assert _grpc_status(heard) == (200, "2")
        assert heard.get("grpc-message") == "The request runs in circles"
        assert heard.get("content-type") == "application/grpc"
        assert (heard.body, heard.trailers) == (b"", [])
        # The same by HTTP, for those who do not speak gRPC.
        plain = await client.answer(client.ask("/a.B/Break", method="POST", body=b"x"))
        assert plain.status == 502


async def test_no_upstream(tmp_path: Path) -> None:
    """UNAVAILABLE, where nothing listens."""
    settings: Any = {"listen": {"address": "127.0.0.1:0", "http2": True}, "u": {"http2": True}}
    async with running(tmp_path, "http://127.0.0.1:1", **settings) as run:
        target = f"127.0.0.1:{run.gateway.addresses[0].port}"
        async with grpc.aio.insecure_channel(target, options=ALONE) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                call: Any = channel.unary_unary(f"{METHOD}Unary")
                await call(b"a", timeout=20)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "The upstream could not be reached"
        leave(run)


async def test_deadlines(tmp_path: Path) -> None:
    """`grpc-timeout` is kept: the upstream's stream ends then, and the target is not to blame."""
    served: list[Call] = []

    async def serve(call: Call) -> None:
        served.append(call)
        if call.get(":path") == "/a.B/Stream":
            call.respond(200, ("content-type", "application/grpc"))
            await call.send(message(b"one"))

    u = {"timeouts": {"first_byte": "30s"}, "eject": {"failures": 1}}
    async with between(tmp_path, serve, u=u) as (one, _):
        client = await one.client()
        heard = await _ask(client, ("grpc-timeout", "100m"))
        assert _grpc_status(heard) == (200, "4")
        await until(lambda: served[0].reset_by == 8)
        heard = await _ask(client, ("grpc-timeout", "100000u"), path="/a.B/Stream")
        # It had begun, so it ends without a status, which clients take for one of their own.
        assert (heard.status, heard.body, heard.ended) == (200, message(b"one"), False)
        assert served[0].get("grpc-timeout") == "100m"
        assert dict(one.run.upstream().metrics.errors) == {"timeout_total": 2}


async def test_silent_streams_go_on(tmp_path: Path) -> None:
    """Messages may be far between: `tunnel` bounds the silence, not the limits of bodies."""
    released = asyncio.Event()

    async def serve(call: Call) -> None:
        call.respond(200, ("content-type", "application/grpc"))
        await call.send(message(b"hello"))
        await released.wait()
        call.trail(("grpc-status", "0"))

    async with between(
        tmp_path,
        serve,
        u={"timeouts": {"idle": "100ms", "tunnel": "20s"}},
        server={"body_timeout": "100ms"},
    ) as (one, _):
        client = await one.client()
        stream = client.ask("/a.B/Both", *GRPC, method="POST", ends=False)
        client.send(data(stream, message(b"x")))
        await client.until(lambda: client.heard[stream].body == message(b"hello"))
        await asyncio.sleep(0.6)
        assert not client.heard[stream].is_over
        client.send(data(stream, ends=True))
        await asyncio.sleep(0.6)
        released.set()
        heard = await client.answer(stream)
        assert (heard.ended, dict(heard.trailers)) == (True, {"grpc-status": "0"})


async def test_streams_that_are_silent_for_too_long(tmp_path: Path) -> None:
    """`tunnel` ends them."""

    async def serve(call: Call) -> None:
        call.respond(200, ("content-type", "application/grpc"))
        await call.until(lambda: call.reset_by is not None)

    async with between(tmp_path, serve, u={"timeouts": {"tunnel": "150ms"}}) as (one, _):
        client = await one.client()
        heard = await _ask(client)
        assert heard.reset >= 0
        stream = client.ask("/a.B/Both", *GRPC, method="POST", ends=False)
        client.send(data(stream, message(b"x")))
        assert (await client.answer(stream)).reset >= 0


async def test_retries_by_status(tmp_path: Path) -> None:
    """A call whose status is named is repeated, unless the upstream forbids it."""
    failures: dict[str, list[tuple[str, str]]] = {
        "/a.B/Once": [("grpc-status", "14")],
        "/a.B/Other": [("grpc-status", "5")],
        "/a.B/Never": [("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")],
    }
    tried: dict[str, int] = {}

    async def serve(call: Call) -> None:
        path = call.get(":path") or ""
        tried[path] = tried.get(path, 0) + 1
        await call.whole()
        if tried[path] == 1:
            call.respond(200, ("content-type", "application/grpc"), *failures[path], ends=True)
        else:
            await call.answer(
                message(b"ok"),
                ("content-type", "application/grpc"),
                trailers=(("grpc-status", "0"),),
            )

    route = {"retry": {"tries": 3, "when": ["connect", "UNAVAILABLE"]}}
    async with between(tmp_path, serve, route=route) as (one, _):
        client = await one.client()
        assert _grpc_status(await _ask(client, path="/a.B/Once")) == (200, "0")
        assert _grpc_status(await _ask(client, path="/a.B/Other")) == (200, "5")
        heard = await _ask(client, path="/a.B/Never")
        assert _grpc_status(heard) == (200, "14")
        assert heard.get("grpc-retry-pushback-ms") == "-1"
    assert tried == {"/a.B/Once": 2, "/a.B/Other": 1, "/a.B/Never": 1}


@pytest.mark.parametrize("service", ["", "pkg.Echo"])
async def test_health_checks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, service: str
) -> None:
    """The upstream's own health service is asked."""
    caplog.set_level(logging.INFO)
    u = {
        "health": {"grpc": service, "every": "20ms", "unhealthy_after": 1, "healthy_after": 1},
        "if_none_healthy": "reject",
    }
    async with calls(tmp_path, "left out", u=u) as (channel, _, upstream):
        status: Any = health_pb2.HealthCheckResponse.ServingStatus

        async def ask() -> str:
            try:
                answer: bytes = await channel.unary_unary(f"{METHOD}Unary")(b"a", timeout=20)
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name} {error.details()}"
            return answer.decode()

        async def become(expected: str) -> None:
            async with asyncio.timeout(20):
                while await ask() != expected:
                    pass

        # The first check may be over already, and a service that nobody has set is unknown.
        await upstream.health.set(service, status.SERVING)
        await become("A")
        await upstream.health.set(service, status.NOT_SERVING)
        await become("UNAVAILABLE No target of the upstream is healthy")
        await upstream.health.set(service, status.SERVING)
        await become("A")


async def test_many_calls_one_after_the_other(tmp_path: Path) -> None:
    """A client that is fast is no flood: each answer makes it send WINDOW_UPDATE frames."""
    async with calls(tmp_path) as (channel, run, _):
        unary = channel.unary_unary(f"{METHOD}Unary")
        for _ in range(1500):
            assert await unary(b"a", timeout=20) == b"A"
        assert dict(run.gateway.metrics.client_errors) == {}


async def test_keepalive_pings(tmp_path: Path) -> None:
    """A client that asks every ten seconds, also without calls, is not told to calm down."""
    async with calls(tmp_path) as (_, run, _):
        client = await Http2Client.connect(run.gateway.addresses[0].port)
        for _ in range(500):
            await client.synced()
        assert (await client.get("/")).status in (200, 404, 415, 502)
        assert not client.goaways
        await client.close()
