"""TLS to one upstream, as its files are at the moment."""

from __future__ import annotations

import ssl
from pathlib import Path

from gateway.tls.files import KeyPair, client_context, digest


class UpstreamTls:
    """TLS of the connections to one upstream.

    Args:
        ca: as in `files.client_context`.
        pair: likewise.
        server_name: the name that is asked for and checked; empty for the target's own.
        verifies: whether certificate and name are checked.

    Attributes:
        context: for new connections, once it is loaded.
        server_name: as given.
        paths: every file that it is made of.
    """

    def __init__(
        self, ca: Path | None, pair: KeyPair | None, server_name: str = "", *, verifies: bool = True
    ) -> None:
        self._ca = ca
        self._pair = pair
        self._verifies = verifies
        self.server_name = server_name
        self.paths = (
            *(() if ca is None else (ca,)),
            *(() if pair is None else (pair.cert, pair.key)),
        )
        self._digest = b""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def load(self) -> None:
        """Read the files; blocks.

        Raises:
            TlsFileError: one will not do.
        """
        self._digest = digest(self.paths)
        self.context = self._load()

    def renew(self) -> bool:
        """Read the files again if they have changed, as `ServerTls.renew`."""
        found = digest(self.paths)
        if found == self._digest:
            return False
        self._digest = found
        self.context = self._load()
        return True

    def _load(self) -> ssl.SSLContext:
        return client_context(self._ca, self._pair, verifies=self._verifies)
