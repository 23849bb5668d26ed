"""A gRPC server that answers every call of one method with the same bytes.

`python -m bench.grpc_constant PORT METHOD ANSWER`, with the answer in hexadecimal digits: what
`grpc.aio` can do at best in one process, on the loop that Sluice runs on.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import grpc
import grpc.aio
import uvloop


class _Constant(grpc.GenericRpcHandler):
    """One method, found in one comparison."""

    def __init__(self, method: str, answer: bytes) -> None:
        async def call(_data: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            return answer

        self._method = method
        self._handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(call)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """What answers the method; None for any other."""
        return self._handler if handler_call_details.method == self._method else None


async def _serve(port: int, method: str, answer: bytes) -> None:
    server = grpc.aio.server(handlers=[_Constant(method, answer)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    # As Sluice does.
    gc.collect()
    gc.freeze()
    uvloop.run(_serve(int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])))
