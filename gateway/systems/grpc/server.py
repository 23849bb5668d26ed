"""A gRPC server for front ends, with what tools expect of every server: health and reflection.

It speaks HTTP/2, with or without TLS; without TLS it belongs on loopback or in a trusted network.
grpcio's own threads poll the sockets; methods run on the event loop. There are no interceptors
and no serialisers: a method takes the bytes of its request and returns bytes, since every layer of
grpcio costs a call more than deciding it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2

from gateway.base.clock import US
from gateway.base.tasks import Background, Tasks, becomes
from gateway.config.models.frontends import FrontendConfig
from gateway.config.values.address import Address, UnixAddress
from gateway.net.binding import ALONE, Sharing
from gateway.systems.base import FrontendContext
from gateway.systems.grpc.calls import UNREADABLE, Answer, Calls, Context
from gateway.systems.grpc.health import HEALTH, Health
from gateway.systems.grpc.ports import Ports, ServingOptions
from gateway.systems.grpc.protobuf import DecodeError, known
from gateway.systems.grpc.reflection import Reflection
from gateway.systems.grpc.tls import is_named
from gateway.systems.open_files import affordable_connections

log = logging.getLogger(__name__)

MAX_OPTION: Final = 2**31 - 1
"""The largest value in grpcio; as milliseconds 24 days."""
STRANGER: Final = "this certificate is for none of the names that may ask"
CONNECTIONS: Final = 10_000
RARE_S: Final = 0.5
"""How long shutdown waits for a moment in which no call begins: grpcio answers `CANCELLED` to calls
that arrive after it has begun to stop, from clients that have not noticed yet."""
HEARD_S: Final = 1.0
"""How long clients have to react to the shutdown: to send the rest of a request, or to answer the
PING with which grpcio checks the connection. grpcio itself would wait 20 s."""
SENT_S: Final = 0.1
"""How long the last answers have to be sent."""
LATER_S: Final = 60.0
"""Well after the end."""


class Bounds(NamedTuple):
    """Bounds on what clients may use, so that none can use up the server.

    Attributes:
        message_bytes: size of a request, after decompression; more is `RESOURCE_EXHAUSTED`.
        calls_per_connection: calls in flight on one connection, which is announced to clients. A
        client
            that keeps to it, and has more to ask, still gets some refused (`REFUSED_STREAM`): here
            a call counts until all of it is gone, a moment longer than there. Without this guard, a
            client that begins and cancels calls would keep all others waiting.
        calls: calls in flight in all; one more is `RESOURCE_EXHAUSTED`.
        connections: open connections; further ones are closed immediately.
        handshake_us: microseconds in all that a new connection has for its first HTTP/2 frame.
        ping_us: microseconds between two PINGs of one connection, with or without calls in flight.
            A client that sends more than two sooner, without any call, gets `ENHANCE_YOUR_CALM`
            and is disconnected. Envoy and Go keep idle connections alive with one every ten
            seconds, some with one a second.
        age_us: microseconds after which clients are asked to reconnect, a tenth more or less; None
            for never.
        grace_us: microseconds that calls may take then; None for no limit.
        request_us: microseconds that a request may take to arrive, once its call has begun; then it
            is `DEADLINE_EXCEEDED`.
        quiet_us: microseconds without a new call after which a draining server accepts no more:
            little is on its way then.
    """

    message_bytes: int = 64 * 1024
    calls_per_connection: int = 1_000
    calls: int = 10_000
    connections: int = CONNECTIONS
    handshake_us: int = 5 * US
    request_us: int = 10 * US
    ping_us: int = US // 2
    quiet_us: int = 2_000
    age_us: int | None = None
    grace_us: int | None = None


def bounds_of(listener: FrontendConfig, context: FrontendContext) -> Bounds:
    """Return the limits of a listener."""
    return Bounds(
        connections=min(CONNECTIONS, affordable_connections(context.config.listeners)),
        age_us=listener.max_connection_age,
        grace_us=listener.max_connection_age_grace,
    )


def serving_of(name: str, listener: FrontendConfig, context: FrontendContext) -> ServingOptions:
    """Return how the server of a listener with this name listens."""
    return ServingOptions(listener.address, listener.mode, context.tls.get(name))


class Service(NamedTuple):
    """A service that a front end offers.

    Attributes:
        name: its full name.
        methods: its methods by name, all of them unary.
        files: its description, each file after those that it imports.
        health_names: further names for health checks.
    """

    name: str
    methods: Mapping[str, Answer]
    files: Sequence[FileDescriptorProto]
    health_names: Sequence[str] = ()


class GrpcServer:
    """Serves calls on one address; must be used inside a running event loop.

    Args:
        services: the services besides health and reflection.
        bounds: see there.
        malformed: called for every request that cannot be read, which is answered `INTERNAL`, as
            by every gRPC server.
        is_able: returns whether it can answer now, for health checks.
        sharing: of its address.
    """

    def __init__(
        self,
        services: Sequence[Service],
        bounds: Bounds,
        malformed: Callable[[], None] = lambda: None,
        is_able: Callable[[], bool] = lambda: True,
        sharing: Sharing = ALONE,
    ) -> None:
        names = [service.name for service in services]
        files = [file for service in services for file in service.files]
        self._calls = Calls(bounds.request_us, bounds.quiet_us)
        described = [*files, known(health_pb2)]
        reflection = Reflection([*names, HEALTH], described, malformed, self._calls)
        self._lateness = Background(self._calls.refuse_late)
        also = [name for service in services for name in service.health_names]
        self._streams = (Health([*names, *also], is_able, malformed, self._calls), reflection)
        handlers = {
            f"/{service.name}/{method}": self._calls.unary(
                self._guarded(_reading(answer, malformed))
            )
            for service in services
            for method, answer in service.methods.items()
        }
        for stream in self._streams:
            handlers |= stream.handlers()
        self._server = grpc.aio.server(
            handlers=[_Handlers(handlers)],
            options=_options(bounds, sharing),
            maximum_concurrent_rpcs=bounds.calls,
        )
        self._names: frozenset[str] = frozenset()
        self._ports = Ports(self._server, sharing)
        self._tasks = Tasks()

    async def start(self, serving: ServingOptions) -> Address | UnixAddress:
        """Start listening and serving; return the address with the actual port.

        Raises:
            OSError: the address cannot be bound; see `Ports.open`.
        """
        if serving.tls is not None:
            self._names = serving.tls.names
        address = await self._ports.open(serving)
        await self._server.start()
        self._lateness.start()
        return address

    @property
    def under_way(self) -> int:
        """Return how many calls are in flight, without health checks and reflection."""
        return self._calls.under_way

    def _guarded(self, answer: Answer) -> Answer:
        """Answer only clients whose certificates have one of the names, if there are any names."""

        async def call(data: bytes, context: Context) -> bytes:
            if self._names and not is_named(context, self._names):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, STRANGER)
            return await answer(data, context)

        return call

    async def drain(self, seconds: float) -> int:
        """Report the shutdown, accept no more calls, let those in flight end, and close.

        Args:
            seconds: how long calls in flight may take; the rest is cancelled.

        Returns:
            How many were cancelled.
        """
        for stream in self._streams:
            stream.end()
        due = asyncio.get_running_loop().time() + seconds
        try:
            await self._lateness.end()
            await self._calls.wait_for_quiet(min(RARE_S, seconds))
            return await self._end(due)
        except asyncio.CancelledError:
            # The server must be stopped all the same: its threads would outlive the loop.
            await self._ports.remove_file()
            await self._server.stop(None)
            raise

    async def _end(self, due: float) -> int:
        """Accept no more calls, and close when those in flight have ended or their time is over."""
        loop = asyncio.get_running_loop()
        await self._ports.remove_file()
        # The calls left are counted and cancelled here. grpcio must not be about to do so itself:
        # grpcio 1.85 crashes if two of its stops end at the same time.
        stopping = self._tasks.start(self._server.stop(max(due - loop.time(), 0) + LATER_S))
        await asyncio.wait({stopping}, timeout=min(HEARD_S, max(due - loop.time(), 0)))
        await self._calls.refuse_unread()
        calls = self._calls
        await becomes(lambda: stopping.done() or not calls.under_way, due - loop.time())
        left = calls.under_way
        if not left:
            # Normally everything ends with the last answer.
            await asyncio.wait({stopping}, timeout=SENT_S)
        if not stopping.done():
            # Without calls, only connections of silent peers are left.
            await self._server.stop(None)
        await asyncio.shield(stopping)
        return left


class _Handlers(grpc.GenericRpcHandler):
    """Every method in one dictionary: grpcio asks one handler after the other for each call."""

    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        self._handlers = handlers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return what answers a call; None for a method that does not exist."""
        return self._handlers.get(handler_call_details.method)


def _reading(answer: Answer, malformed: Callable[[], None]) -> Answer:
    async def call(data: bytes, context: Context) -> bytes:
        try:
            return await answer(data, context)
        except DecodeError:
            malformed()
            await context.abort(grpc.StatusCode.INTERNAL, UNREADABLE)
        except grpc.aio.AbortError:
            raise
        except Exception:
            # grpcio would send the exception's text to the client.
            log.exception("A call failed in a way that it must not")
            await context.abort(grpc.StatusCode.INTERNAL, "the server failed")

    return call


def _options(bounds: Bounds, sharing: Sharing) -> list[tuple[str, int]]:
    ages = {
        "grpc.max_connection_age_ms": bounds.age_us,
        "grpc.max_connection_age_grace_ms": bounds.grace_us,
    }
    return [
        # By default grpcio would share a port with another process.
        ("grpc.so_reuseport", int(sharing.is_on)),
        ("grpc.max_receive_message_length", bounds.message_bytes),
        ("grpc.max_concurrent_streams", bounds.calls_per_connection),
        (
            "grpc.max_allowed_incoming_connections",
            bounds.connections,
        ),
        ("grpc.server_handshake_timeout_ms", _milliseconds(bounds.handshake_us)),
        # Without calls grpcio would accept a PING every two hours, and with some every five
        # minutes. Despite its name, this option is the interval between PINGs that it receives.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(bounds.ping_us)),
        *((name, _milliseconds(us)) for name, us in ages.items() if us is not None),
    ]


def _milliseconds(us: int) -> int:
    return min(max(us // 1000, 1), MAX_OPTION)
