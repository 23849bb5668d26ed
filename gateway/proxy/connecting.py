"""Connecting to an upstream."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from gateway.errors import UpstreamConnectError, UpstreamTlsError
from gateway.proxy.upstream import Patience, UpstreamConnection


async def open_connection(
    host: str,
    port: int,
    *,
    on_close: Callable[[UpstreamConnection], None],
    patience: Patience,
    ssl_context: ssl.SSLContext | None,
    max_head: int,
    server_name: str = "",
) -> UpstreamConnection:
    """Connect.

    Raises:
        UpstreamTlsError: the other end is not who it should be, or TLS failed otherwise.
        UpstreamConnectError: refused, unreachable, or an unknown name.
    """
    try:
        _, protocol = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(on_close, patience, max_head),
            host,
            port,
            ssl=ssl_context,
            server_hostname=(server_name or host) if ssl_context is not None else None,
        )
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or "TLS failed"
        raise UpstreamTlsError(reason.replace("_", " ").lower()) from error
    except OSError as error:
        raise UpstreamConnectError(str(error)) from error
    return protocol
