"""Certificates of a listener whose library makes TLS by itself, of texts that it is given.

gRPC is one. The files are looked at as those of other listeners are, so that what will not do is
told in the same words, whoever uses it in the end.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.tls.files import KeyPair, leaf, load_authorities, load_pair
from gateway.tls.renewed import Renewed


class Texts(NamedTuple):
    """What is in the files.

    Attributes:
        pairs: each key with its certificates, as PEM.
        authorities: those of clients, as PEM; None if clients are asked for nothing.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    authorities: bytes | None


class TlsTexts(Renewed):
    """The files of one listener.

    Args:
        pairs: certificates, of which no key is encrypted; the first is for names that none of
            them has.
        client_ca: the authorities whose certificates clients must have; None if they are asked
            for none.

    Attributes:
        is_required: whether clients must have certificates.
    """

    def __init__(self, pairs: Sequence[KeyPair], client_ca: Path | None) -> None:
        self._pairs = tuple(pairs)
        self._client_ca = client_ca
        self.is_required = client_ca is not None
        authorities = () if client_ca is None else (client_ca,)
        super().__init__(
            (*(path for pair in pairs for path in (pair.cert, pair.key)), *authorities)
        )
        self._new: Texts | None = None
        self.expiries: dict[str, int] = {}
        """When each certificate ends, in seconds since 1970, by its file."""

    def take_new(self) -> Texts | None:
        """What has been read since it was last taken; None if nothing has.

        May be called in any thread.
        """
        new, self._new = self._new, None
        return new

    def _read(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for pair in self._pairs:
            load_pair(context, pair)
        authorities = None
        if self._client_ca is not None:
            load_authorities(context, self._client_ca)
            authorities = self._client_ca.read_bytes()
        texts = tuple((pair.key.read_bytes(), pair.cert.read_bytes()) for pair in self._pairs)
        self.expiries = {str(pair.cert): leaf(pair).not_after for pair in self._pairs}
        self._new = Texts(texts, authorities)
