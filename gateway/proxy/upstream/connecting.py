"""Connect to an upstream: to one address, or to the first address of a name that answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from gateway.base.clock import monotonic_us
from gateway.base.errors import UpstreamConnectError, UpstreamTlsError
from gateway.config.models.gateway import Target
from gateway.proxy.upstream.addresses import Addresses
from gateway.proxy.upstream.names import Name

NEXT_S: Final = 0.25
"""After this long without a connection, the next address is tried as well (RFC 8305, section 5)."""


Opened = TypeVar("Opened")


async def open_connection(
    place: Target | Name,
    port: int,
    make: Callable[[str], Opened],
    *,
    ssl_context: ssl.SSLContext | None,
    server_name: str = "",
    protocol: str = "",
) -> Opened:
    """Connect.

    Args:
        place: a target at an address or a socket, or the name of one.
        port: of the server.
        make: returns what reads and writes, an asyncio protocol, given the address of the other
            end; that is empty if there is only one.
        ssl_context: for TLS; None for none.
        server_name: the name that TLS requests and verifies.
        protocol: what TLS has to agree on (ALPN); empty for anything.

    Returns:
        What was made.

    Raises:
        UpstreamTlsError: the server's certificate does not match, or TLS failed otherwise.
        UpstreamConnectError: refused, unreachable, or an unknown name.
    """
    address = ""
    where: dict[str, Any] = {}
    loop = asyncio.get_running_loop()

    def connection() -> asyncio.BaseProtocol:
        # It has the methods of a protocol, but not its class.
        return cast("asyncio.BaseProtocol", make(address))

    try:
        if not isinstance(place, Name) and place.socket:
            _, opened = await loop.create_unix_connection(connection, place.socket)
            return cast("Opened", opened)
        if isinstance(place, Name):
            await place.ready()
            address, where["sock"] = await _connect_to(place, port)
        else:
            where["host"], where["port"] = place.host, port
        transport, opened = await loop.create_connection(
            connection,
            ssl=ssl_context,
            server_hostname=server_name if ssl_context is not None else None,
            **where,
        )
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or "TLS failed"
        raise UpstreamTlsError(reason.replace("_", " ").lower()) from error
    except OSError as error:
        raise UpstreamConnectError(str(error)) from error
    if protocol and ssl_context is not None:
        tls = transport.get_extra_info("ssl_object")
        if tls.selected_alpn_protocol() != protocol:
            transport.abort()
            raise UpstreamTlsError(f"the target does not offer {protocol} (ALPN)")
    return cast("Opened", opened)


async def _connect_to(name: Name, port: int) -> tuple[str, socket.socket]:
    try:
        return await race(name.addresses, name.addresses.order(monotonic_us()), port)
    except BaseException:
        name.refresh_soon()
        raise


async def race(addresses: Addresses, order: Sequence[str], port: int) -> tuple[str, socket.socket]:
    """Connect to the first address that answers; abandon the others (RFC 8305).

    The next one is tried as soon as one fails or is late.

    Args:
        addresses: records which ones failed and which one worked.
        order: the ones to try.
        port: of all of them.

    Raises:
        OSError: the error of the last one.
    """
    left = list(order)
    under_way: dict[asyncio.Task[socket.socket], str] = {}
    error = OSError("no address")
    loop = asyncio.get_running_loop()
    try:
        while left or under_way:
            if left:
                address = left.pop(0)
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                under_way[loop.create_task(_connect(family, (address, port)))] = address
            wait_s = NEXT_S if left else None
            done, _ = await asyncio.wait(
                under_way, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failure = task.exception()
                address = under_way.pop(task)
                if failure is None:
                    addresses.worked(address)
                    return address, task.result()
                if not isinstance(failure, OSError):
                    raise failure
                error = failure
                addresses.failed(address, monotonic_us())
        raise error
    finally:
        for task, address in under_way.items():
            addresses.failed(address, monotonic_us())
            task.add_done_callback(_close)
            task.cancel()


async def _connect(family: int, where: str | tuple[str, int]) -> socket.socket:
    # asyncio sets TCP_NODELAY only on a socket that names its protocol.
    protocol = 0 if family == socket.AF_UNIX else socket.IPPROTO_TCP
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, protocol)
    try:
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _close(task: asyncio.Task[socket.socket]) -> None:
    """Close a connection that is no longer needed; it may have just been opened."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
