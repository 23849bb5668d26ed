"""A client's request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiohttp.hdrs import HOST
from aiohttp.http_writer import HttpVersion10
from multidict import CIMultiDict, CIMultiDictProxy

from gateway.base.clock import monotonic_ns
from gateway.base.errors import BadRequestError

if TYPE_CHECKING:
    from gateway.net.tls.peer import ClientCertificate
    from gateway.proxy.client.handler import RequestBody, ServedConnection
    from gateway.proxy.client.request_message import RequestMessage
    from gateway.routing.forwarding import ProxyReport


_is_authority: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]+").fullmatch
"""The form of a `CONNECT` target (RFC 9112, section 3.2.3)."""


class Request:
    """A client's request; decisions and progress are kept elsewhere.

    Attributes:
        connection: where it came from.
        message: the parsed head.
        payload: the body, as it arrives.
        started_ns: when it arrived; monotonic.
        method: the method, as sent.
        headers: the header fields, as sent; without those that untrusted clients may not send.
        is_http_1_0: whether the client uses HTTP/1.0.
        target: the request target in origin form, or `*`.
        path: the part of the target before the query.
        query: the part after it.
        raw_host: the host as the client wrote it; empty if an HTTP/1.0 client named none.
        host: the same in normal form.
        client: the address that the request is counted for.
        client_key: the key that this address is counted under.
        scheme: `http` or `https`, as the client used it.
        story: what a trusted proxy reported about the client; None if none did.
    """

    __slots__ = (
        "client",
        "client_key",
        "connection",
        "headers",
        "host",
        "is_http_1_0",
        "message",
        "method",
        "path",
        "payload",
        "query",
        "raw_host",
        "report",
        "scheme",
        "started_ns",
        "target",
    )

    def __init__(
        self, connection: ServedConnection, message: RequestMessage, payload: RequestBody
    ) -> None:
        self.started_ns = monotonic_ns()
        self.connection = connection
        self.message = message
        self.payload = payload
        self.method: str = message.method
        self.headers: CIMultiDictProxy[str] = message.headers
        self.is_http_1_0: bool = message.version == HttpVersion10
        self.target: str = message.path
        self.path = self.target
        self.query = ""
        self.raw_host = ""
        self.host = ""
        self.client: str = connection.peer
        self.client_key = connection.peer_key
        self.scheme: str = connection.scheme
        self.report: ProxyReport | None = None

    @property
    def client_certificate(self) -> ClientCertificate | None:
        """Return the client's certificate; None if it sent none."""
        return self.connection.certificate

    @property
    def is_from_proxy(self) -> bool:
        """Return whether a trusted proxy has sent it."""
        return self.connection.is_trusted

    @property
    def is_http_2(self) -> bool:
        """Return whether it came over HTTP/2: a message ends with its stream, not by its framing.

        Not an attribute: hardly any request needs it (bench: passing).
        """
        return self.message.version[0] == 2

    def read_target(self) -> None:
        """Find host, path and query in any form of the target (RFC 9112, section 3.2).

        Raises:
            BadRequestError: the target has no valid form, or is one that a reverse proxy must
                not serve.
        """
        target = self.target
        self.raw_host = self.headers.get(HOST, "")
        if target[:1] != "/":
            self._read_other_form(target)
            target = self.target
        self.path, _, self.query = target.partition("?")
        if "#" in self.query:
            raise BadRequestError("The request target has a fragment", kind="target")

    def _read_other_form(self, target: str) -> None:
        if target == "*" and self.method == "OPTIONS":
            return
        if self.method == "CONNECT" and _is_authority(target):
            raise BadRequestError("This method is not allowed", 405, kind="method", closes=True)
        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() != self.connection.scheme:
            raise BadRequestError("The request target is not valid", kind="target")
        end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
        authority = rest[:end]
        if not authority or "@" in authority:
            raise BadRequestError("The request target is not valid", kind="target")
        # The target's host overrides the Host field, and replaces it, also where the field is read
        # by its name (RFC 9112, section 3.2.2).
        self.raw_host = authority
        headers = CIMultiDict(self.headers)
        headers[HOST] = authority
        self.headers = CIMultiDictProxy(headers)
        path = rest[end:]
        if not path and self.method == "OPTIONS":
            # RFC 9112, section 3.2.4.
            self.target = "*"
        else:
            self.target = path if path.startswith("/") else f"/{path}"
