"""A gRPC server for front ends, with what tools expect of any: health checks and reflection.

It speaks HTTP/2 without TLS, as the services that it stands for do, so it belongs on loopback or
into a network that one trusts. grpcio's own threads poll the sockets; methods run on the event
loop. There are no interceptors and no serialisers: a method is given the bytes of its request and
answers with bytes, since every layer of grpcio's own costs a call more than deciding on it does.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2

from gateway.config.models import Address
from gateway.frontends.grpc_health import HEALTH, UNREADABLE, Health
from gateway.frontends.grpc_reflection import Reflection
from gateway.protocols.protobuf import DecodeError, known
from gateway.tasks import Tasks

log = logging.getLogger(__name__)

US: Final = 1_000_000
MAX_OPTION: Final = 2**31 - 1
"""Of grpcio; as milliseconds 24 days."""
MANY_FILES: Final = 1_000_000
"""Files where there is no bound on them."""
Context = grpc.aio.ServicerContext[Any, Any]
Answer = Callable[[bytes, Context], Awaitable[bytes]]
"""Answers one call: the bytes of a request, and the call itself; raises `DecodeError` for bytes
that are no such request. A method that cannot answer calls `Context.abort`.
"""


class Bounds(NamedTuple):
    """What a client may ask of a server, so that none can take all of it.

    Attributes:
        message_bytes: a request, after decompression; a longer one is `RESOURCE_EXHAUSTED`.
        calls_per_connection: calls under way on one connection, which clients are told. A client
            that keeps to it, and has more to ask, has some refused all the same (`REFUSED_STREAM`):
            a call counts until all of it is gone, here a moment later than there. Without that
            guard a client that begins and cancels calls keeps all others waiting.
        calls: calls under way in all; one more is `RESOURCE_EXHAUSTED`.
        connections: connections that are open, but no more than a third of all files may be; more
            of them are closed at once.
        handshake_us: microseconds that a new connection has for its first frame of HTTP/2, in all.
    """

    message_bytes: int = 64 * 1024
    calls_per_connection: int = 1_000
    calls: int = 10_000
    connections: int = 10_000
    handshake_us: int = 5 * US


class Service(NamedTuple):
    """A service that a front end offers.

    Attributes:
        name: its full name.
        methods: what answers each of its methods, which are all of one request and one answer.
        files: its description, a file after those that it imports.
    """

    name: str
    methods: Mapping[str, Answer]
    files: Sequence[FileDescriptorProto]


class GrpcServer:
    """Serves calls on one address; to be used inside a running event loop.

    Args:
        services: what it offers beside health and reflection.
        bounds: see there.
        malformed: called for every request that cannot be read, which is answered `INTERNAL`, as
            by every gRPC server.
        is_able: whether it could give answers now, for those who ask for its health.
    """

    def __init__(
        self,
        services: Sequence[Service],
        bounds: Bounds,
        malformed: Callable[[], None] = lambda: None,
        is_able: Callable[[], bool] = lambda: True,
    ) -> None:
        names = [service.name for service in services]
        files = [file for service in services for file in service.files]
        reflection = Reflection([*names, HEALTH], [*files, known(health_pb2)], malformed)
        self._streams = (Health(names, is_able, malformed), reflection)
        handlers = {
            f"/{service.name}/{method}": _unary(answer, malformed)
            for service in services
            for method, answer in service.methods.items()
        }
        for stream in self._streams:
            handlers |= stream.handlers()
        self._server = grpc.aio.server(
            handlers=[_Handlers(handlers)],
            options=_options(bounds),
            maximum_concurrent_rpcs=bounds.calls,
        )
        self._tasks = Tasks()

    async def start(self, address: Address) -> Address:
        """Listen and serve; returns the address with the port that was really taken.

        An empty host stands for every address of this machine, and so does 0.0.0.0, those of IPv6
        included.

        Raises:
            OSError: the address cannot be had.
        """
        hosts = await _free(address)
        port = address.port
        for host in hosts:
            try:
                port = self._server.add_insecure_port(str(Address(host, port)))
            except RuntimeError as error:
                # What it says is how to make it say more.
                raise OSError(errno.EADDRINUSE, "gRPC could not bind it") from error
        await self._server.start()
        return Address(address.host, port)

    async def drain(self, seconds: float) -> None:
        """Say that it ends, take no more calls, let those under way end, and close.

        Args:
            seconds: how long calls under way may take; those that are left are cancelled.
        """
        for stream in self._streams:
            stream.end()
        # If this is cancelled the server must go all the same: its threads would outlive the loop.
        stopping = self._tasks.start(self._server.stop(seconds))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await self._server.stop(None)
            raise


class _Handlers(grpc.GenericRpcHandler):
    """Every method in one dictionary: grpcio asks one handler after the other for each call."""

    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        self._handlers = handlers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """What answers a call; None for a method that is not there."""
        return self._handlers.get(handler_call_details.method)


def _unary(answer: Answer, malformed: Callable[[], None]) -> grpc.RpcMethodHandler[Any, Any]:
    async def call(data: bytes, context: Context) -> bytes:
        try:
            return await answer(data, context)
        except DecodeError:
            malformed()
            await context.abort(grpc.StatusCode.INTERNAL, UNREADABLE)
        except grpc.aio.AbortError:
            raise
        except Exception:
            # grpcio would tell the client what it was.
            log.exception("A call failed in a way that it must not")
            await context.abort(grpc.StatusCode.INTERNAL, "the server failed")

    return grpc.unary_unary_rpc_method_handler(call)


def _options(bounds: Bounds) -> list[tuple[str, int]]:
    return [
        # A port that another has is an error, not half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", bounds.message_bytes),
        ("grpc.max_concurrent_streams", bounds.calls_per_connection),
        ("grpc.max_allowed_incoming_connections", min(bounds.connections, _affordable())),
        ("grpc.server_handshake_timeout_ms", min(max(bounds.handshake_us // 1000, 1), MAX_OPTION)),
    ]


def _affordable() -> int:
    """How many connections leave files enough for stores and for other listeners."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(files // 3, 1) if files != resource.RLIM_INFINITY else MANY_FILES


async def _free(address: Address) -> list[str]:
    """The addresses that a host stands for, each of which can be bound.

    grpcio does not say why one cannot be had, and is content if it has one of two.

    Raises:
        OSError: one cannot be bound, and why.
    """
    infos = await asyncio.get_running_loop().getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    hosts = dict.fromkeys(place[0] for family, _, _, _, place in infos if _can_bind(family, place))
    if not hosts:
        raise OSError(errno.EAFNOSUPPORT, "this machine has none of its kinds of address")
    wild = [host for host in hosts if host in {"0.0.0.0", "::"}]  # noqa: S104 - as it was asked
    # One stands for both with grpcio.
    return [str(host) for host in wild[:1] or hosts]


def _can_bind(family: socket.AddressFamily, place: tuple[Any, ...]) -> bool:
    """Whether there is such a family of addresses here; raises if the address cannot be had."""
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return False
        raise
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(place)
    return True
