"""TLS to one upstream, with its current files."""

from __future__ import annotations

import ssl
from pathlib import Path

from gateway.net.tls.files import KeyPair, client_context, files_of
from gateway.net.tls.renewed import Renewed


class UpstreamTls(Renewed):
    """TLS of the connections to one upstream.

    Args:
        ca: as in `files.client_context`.
        pair: likewise.
        server_name: the name that is requested and verified; empty for the target's own.
        verifies: whether certificate and name are verified.
        is_strict: as in `files.client_context`.
        protocol: what is agreed on with the server (ALPN); empty for anything.

    Attributes:
        context: for new connections, once it is loaded.
        server_name: as given.
    """

    def __init__(
        self,
        ca: Path | None,
        pair: KeyPair | None,
        server_name: str = "",
        *,
        verifies: bool = True,
        is_strict: bool = False,
        protocol: str = "",
    ) -> None:
        super().__init__(files_of(() if pair is None else (pair,), ca))
        self._ca = ca
        self._pair = pair
        self._verifies = verifies
        self._is_strict = is_strict
        self._protocol = protocol
        self.server_name = server_name
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def _read(self) -> None:
        self.context = client_context(
            self._ca, self._pair, verifies=self._verifies, is_strict=self._is_strict
        )
        if self._protocol:
            self.context.set_alpn_protocols([self._protocol])
