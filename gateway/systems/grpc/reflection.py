"""gRPC's reflection service: clients such as grpcurl ask the server for its services.

Offered in both versions that clients use. They differ only in the name of their package, which is
not on the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

from gateway.systems.grpc.calls import UNREADABLE, Calls, Context
from gateway.systems.grpc.protobuf import DecodeError, known, pool_of

_OLD: Final = "grpc.reflection.v1alpha"
_NEW: Final = "grpc.reflection.v1"
_SERVICE: Final = "ServerReflection"
MAX_STREAMS: Final = 100
"""The most concurrent calls. They come from people and tools, not from clients of the limiter, and
last as long as the client wants, so they must not use up all permitted calls."""
Request = reflection_pb2.ServerReflectionRequest
Response = reflection_pb2.ServerReflectionResponse


class Reflection:
    """Describes services, itself included.

    Args:
        services: their full names.
        files: their descriptions, each after those that it imports.
        malformed: called for every request that cannot be read.
        calls: reads requests.
    """

    def __init__(
        self,
        services: Iterable[str],
        files: Iterable[FileDescriptorProto],
        malformed: Callable[[], None],
        calls: Calls,
    ) -> None:
        old = known(reflection_pb2)
        names = [*services, f"{_NEW}.{_SERVICE}", f"{_OLD}.{_SERVICE}"]
        # Its own descriptions are untyped.
        self._describe: Any = aio.ReflectionServicer(names, _Symbols([*files, old, _renamed(old)]))
        self._ended = asyncio.Event()
        self._malformed = malformed
        self._calls = calls
        self._streams = 0

    def end(self) -> None:
        """End the calls that may have more questions."""
        self._ended.set()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return the methods, by name."""
        write = Response.SerializeToString
        handler: Any = grpc.stream_stream_rpc_method_handler(self._answer, None, write)
        return {f"/{package}.{_SERVICE}/ServerReflectionInfo": handler for package in (_NEW, _OLD)}

    async def _answer(self, _: object, context: Context) -> AsyncIterator[Response]:
        if self._streams >= MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ask already")
        self._streams += 1
        try:
            asked = self._until_ended(context)
            async for response in self._describe.ServerReflectionInfo(asked, context):
                response.valid_host = response.original_request.host
                yield response
        except DecodeError:
            self._malformed()
            await context.abort(grpc.StatusCode.INTERNAL, UNREADABLE)
        finally:
            self._streams -= 1

    async def _until_ended(self, context: Context) -> AsyncIterator[Request]:
        loop = asyncio.get_running_loop()
        ended = loop.create_task(self._ended.wait())
        following: asyncio.Task[bytes | None] | None = None
        try:
            while True:
                following = loop.create_task(self._calls.read_next(context))
                await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done() or (request := following.result()) is None:
                    return
                yield Request.FromString(request)
        finally:
            ended.cancel()
            if following is not None:
                following.cancel()


class _Symbols:
    """A descriptor pool that also finds methods by their names, as reflection promises.

    protobuf's own pool finds everything in a file except methods, and load generators such as
    ghz ask for nothing else.
    """

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._pool = pool_of(files)
        self._services = {
            f"{prefix}{service.name}.{method.name}": f"{prefix}{service.name}"
            for file in files
            for prefix in (f"{file.package}." if file.package else "",)
            for service in file.service
            for method in service.method
        }

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the pool."""
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, name: str) -> FileDescriptor:  # noqa: N802 - as the pool's
        """Return the file that defines a symbol.

        Raises:
            KeyError: no file defines it.
        """
        return self._pool.FindFileContainingSymbol(self._services.get(name, name))


def _renamed(old: FileDescriptorProto) -> FileDescriptorProto:
    """Return the same file in the package without `v1alpha`."""
    new = FileDescriptorProto.FromString(old.SerializeToString())
    new.package = _NEW
    new.name = old.name.replace("v1alpha", "v1")
    for message in new.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(_OLD, _NEW)
    for method in new.service[0].method:
        method.input_type = method.input_type.replace(_OLD, _NEW)
        method.output_type = method.output_type.replace(_OLD, _NEW)
    return new
