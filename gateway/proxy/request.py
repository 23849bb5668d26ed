"""One request on its way: what was asked, and what became of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiohttp.hdrs import HOST
from aiohttp.http_writer import HttpVersion10
from multidict import CIMultiDict, CIMultiDictProxy

from gateway.base.clock import monotonic_ns
from gateway.base.errors import BadRequestError
from gateway.observe.logs import AccessEntry
from gateway.proxy.upstream.answer_head import without_length

if TYPE_CHECKING:
    import asyncio

    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader

    from gateway.limiter.decider import Pending
    from gateway.limiter.lease_keeper import HeldLease
    from gateway.net.tls.peer import ClientCertificate
    from gateway.proxy.client.connection import ClientConnection
    from gateway.proxy.routes import Route
    from gateway.proxy.upstream.answer_head import AnswerHead
    from gateway.proxy.upstream.connection import UpstreamConnection
    from gateway.proxy.upstream.pool import TargetPool
    from gateway.routing.forwarding import Story


_is_authority: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]+").fullmatch
"""The form of a target that `CONNECT` has (RFC 9112, section 3.2.3)."""


class Request:
    """A request and its fate; filled in as it goes along.

    Attributes:
        connection: where it came from.
        message: the parsed head.
        method, headers: as sent.
        target: the request target in origin form, or `*`.
        path, query: the two parts of the target.
        raw_host: the host as the client wrote it; empty if an HTTP/1.0 client named none.
        host: the same in normal form.
        client: the address that the request is counted for, and
        client_key: what it is counted under.
        scheme: `http` or `https`, as the client asked.
        story: what a trusted proxy told of all that; None if nobody did.
        route: the route it takes.
        added_fields: header lines that the gateway adds to the answer.
        policy, decision, wait_us: what the limiter said.
        is_waiting: whether it stands in a queue.
        upstream, upstream_us: the target, and the time until the first byte of its answer.
        status, sent: of the answer, and how many bytes of body went out.
        received: bytes that came through a tunnel; not set before there is one.
        error: what went wrong, as a short kind.
        started_ns, sent_ns: when it came, and when it was sent on; monotonic.
        task: what works on it, if a task does.
        pending: what the store has yet to say of it.
        holding: its place among those that go on at once, if a limit counts these.
        body: the body, if it was here as a whole when it was asked for.
        pool, lent: where it is sent, and over which connection.
        sent_target: what the upstream is asked for, if its route changes requests.
        ticket: what its upstream's circuit breaker let it through with; set by a breaker only.
    """

    __slots__ = (
        "added_fields",
        "body",
        "client",
        "client_key",
        "connection",
        "decision",
        "error",
        "headers",
        "holding",
        "host",
        "is_http_1_0",
        "is_waiting",
        "keeps_alive",
        "lent",
        "message",
        "method",
        "path",
        "payload",
        "pending",
        "policy",
        "pool",
        "query",
        "raw_host",
        "received",
        "route",
        "scheme",
        "sent",
        "sent_ns",
        "sent_target",
        "started_ns",
        "status",
        "story",
        "target",
        "task",
        "ticket",
        "upstream",
        "upstream_us",
        "wait_us",
    )

    pool: TargetPool
    lent: UpstreamConnection
    received: int
    sent_target: str
    ticket: int

    def __init__(
        self, connection: ClientConnection, message: RawRequestMessage, payload: StreamReader
    ) -> None:
        self.started_ns = monotonic_ns()
        self.connection = connection
        self.message = message
        self.payload = payload
        self.method: str = message.method
        self.headers: CIMultiDictProxy[str] = message.headers
        self.target: str = message.path
        self.path = self.target
        self.query = ""
        self.raw_host = ""
        self.host = ""
        self.client: str = connection.peer
        self.client_key = connection.peer_key
        self.scheme: str = connection.scheme
        self.story: Story | None = None
        self.is_http_1_0: bool = message.version == HttpVersion10
        self.keeps_alive: bool = not message.should_close
        self.route: Route | None = None
        self.added_fields = b""
        self.policy = ""
        self.decision = "none"
        self.wait_us = 0
        self.is_waiting = False
        self.upstream = ""
        self.upstream_us = -1
        self.status = 0
        self.sent = 0
        self.error = ""
        self.body: bytes | None = None
        self.holding: HeldLease | None = None
        self.sent_ns = 0
        self.pending: Pending | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def client_certificate(self) -> ClientCertificate | None:
        """What the client has proved to be, if it has shown a certificate."""
        return self.connection.certificate

    def log_entry(self, duration_us: int = 0) -> AccessEntry:
        """What the access log says of it."""
        # Each request comes here once: keywords would cost it another half microsecond.
        return AccessEntry(
            self.client,
            self.method,
            self.raw_host,
            self.target,
            "" if self.route is None else self.route.name,
            self.policy,
            self.decision,
            self.wait_us,
            self.upstream,
            self.upstream_us,
            self.status,
            self.sent,
            duration_us,
            self.error,
        )

    def release(self) -> None:
        """Give back what it kept for as long as it lasted."""
        holding, self.holding = self.holding, None
        if holding is not None:
            holding.release()

    def read_target(self) -> None:
        """Find host, path and query in whatever form they were sent (RFC 9112, section 3.2).

        Raises:
            BadRequestError: the target has no valid form, or is one that a proxy like this
                must not serve.
        """
        target = self.target
        self.raw_host = self.headers.get(HOST, "")
        if target[:1] != "/":
            self._read_other_form(target)
            target = self.target
        question = target.find("?")
        if question >= 0:
            self.path = target[:question]
            self.query = target[question + 1 :]
            if "#" in self.query:
                raise BadRequestError("The request target has a fragment", kind="target")
        else:
            self.path = target

    def pass_interim_on(self, head: AnswerHead) -> None:
        """Send an interim answer of the upstream to the client (RFC 9110, section 15.2)."""
        if head.status != 100 or "Expect" in self.headers:
            # It has no body, and so must not have a length (RFC 9110, section 8.6).
            fields = head.fields if head.length is None else without_length(head.fields)
            self.connection.send(b"%b%b\r\n\r\n" % (head.status_line, fields))

    def _read_other_form(self, target: str) -> None:
        if target == "*" and self.method == "OPTIONS":
            return
        if self.method == "CONNECT" and _is_authority(target):
            self.keeps_alive = False
            raise BadRequestError("This method is not allowed", 405, kind="method")
        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() != self.connection.scheme:
            raise BadRequestError("The request target is not valid", kind="target")
        end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
        authority = rest[:end]
        if not authority or "@" in authority:
            raise BadRequestError("The request target is not valid", kind="target")
        # The target's host wins over the Host field, and replaces it, also for whoever looks at
        # the field by its name (RFC 9112, section 3.2.2).
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
