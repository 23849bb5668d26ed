"""The certificates that a listener currently presents."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.net.tls.files import ClientAuth, KeyPair, files_of, load_pair, server_context
from gateway.net.tls.handshake import ALERT_NO_APPLICATION_PROTOCOL, PROTOCOLS
from gateway.net.tls.names import NameTable
from gateway.net.tls.renewed import Renewed


class _InUse(NamedTuple):
    """The state in use; replaced as a whole."""

    contexts: tuple[ssl.SSLContext, ...]
    names: NameTable
    own: tuple[NameTable | None, ...]
    expiries: dict[str, int]


class ServerTls(Renewed):
    """TLS of one listener.

    All connections start with one context, whatever the name, for as long as the listener lives, so
    that session tickets outlive certificates (with client certificates only until files change,
    because a ticket replaces the verification of a client). The context with the right certificate
    takes over when the client's first message has named the server.

    Args:
        pairs: certificates; the first is for unknown names.
        min_version: as in `files.server_context`.
        clients: likewise.
        is_strict: whether unknown names are refused.
        protocols: as in `files.server_context`.

    Attributes:
        context: for new connections, once it is loaded.
    """

    def __init__(
        self,
        pairs: Sequence[KeyPair],
        min_version: str,
        clients: ClientAuth | None,
        *,
        is_strict: bool,
        protocols: Sequence[str] = PROTOCOLS,
    ) -> None:
        self._pairs = tuple(pairs)
        self._min_version = min_version
        self._clients = clients
        self._is_strict = is_strict
        self._protocols = tuple(protocols)
        super().__init__(files_of(pairs, None if clients is None else clients.ca))
        self._shown = _InUse((), NameTable([]), (), {})
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    @property
    def asks_clients(self) -> bool:
        """Whether clients may present certificates."""
        return self._clients is not None

    @property
    def expiries(self) -> dict[str, int]:
        """When each certificate expires, in seconds since 1970, by its file."""
        return self._shown.expiries

    def _read(self) -> None:
        is_first = not self._shown.contexts
        self._shown = self._load()
        if is_first or self._clients is not None:
            self.context = self._front()

    def _front(self) -> ssl.SSLContext:
        context = server_context(self._min_version, self._clients, self._protocols)
        context.sni_callback = self._choose
        return context

    def _load(self) -> _InUse:
        contexts = tuple(
            server_context(self._min_version, self._clients, self._protocols) for _ in self._pairs
        )
        leaves = [
            load_pair(context, pair) for context, pair in zip(contexts, self._pairs, strict=True)
        ]
        expiries = {
            str(pair.cert): one.not_after
            for pair, one in zip(self._pairs, leaves, strict=True)
            if one is not None
        }
        names = NameTable([() if one is None else one.names for one in leaves])
        own = tuple(None if one is None else NameTable([one.names]) for one in leaves)
        return _InUse(contexts, names, own, expiries)

    def _choose(self, connection: Any, server_name: str | None, _: ssl.SSLContext) -> int | None:
        """The callback of OpenSSL once the name is known, or that there is none."""
        if not connection.offers_one_of(self._protocols):
            return ALERT_NO_APPLICATION_PROTOCOL
        shown = self._shown
        index = shown.names.find(server_name)
        if index is None and self._is_strict:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = shown.contexts[index or 0]
        connection.server_name = server_name or ""
        connection.names = shown.own[index or 0]
        return None
