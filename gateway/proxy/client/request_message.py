"""What the head of a request says, as aiohttp's parser hands it out."""

from __future__ import annotations

from typing import Protocol

from aiohttp.http import HttpVersion
from multidict import CIMultiDictProxy
from yarl import URL


class RequestMessage(Protocol):
    """A request without its body.

    A protocol, because the parser's C class has these attributes but is not the tuple that its
    type says; compiled code checks the type where it takes a value.
    """

    @property
    def method(self) -> str:
        """Return the method, as the client wrote it."""

    @property
    def path(self) -> str:
        """Return the target, as the client wrote it."""

    @property
    def version(self) -> HttpVersion:
        """Return the version of HTTP."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """Return the header fields, decoded."""

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the header fields, as the client wrote them."""

    @property
    def should_close(self) -> bool:
        """Return whether the connection ends with this request."""

    @property
    def compression(self) -> str | None:
        """Return the coding of the body."""

    @property
    def upgrade(self) -> bool:
        """Return whether the client asks for another protocol."""

    @property
    def chunked(self) -> bool:
        """Return whether the body comes in chunks."""

    @property
    def url(self) -> URL:
        """Return the target, taken apart."""
