"""Every error the gateway raises on purpose, as one tree.

Each branch says who is to blame, and so what is done about it::

    GatewayError
      ConfigError              the operator: all problems at once, the command exits 1
        LimitSyntaxError       a limit line such as "10/s burts 20"
      StartError               the machine: an address or a file cannot be had, the command exits 1
      StoreError               the store: the policy's on_store_error speaks, never a 500
        StoreTimeout           no answer within the deadline
        StoreUnavailable       not connected, refused, loading, read-only, out of memory
        StoreReplyError        an answer that cannot be understood
      UpstreamError            the upstream: the client sees 502, 503 or 504
        UpstreamConnectError   refused, unreachable, name not found
          UpstreamTlsError     its certificate is not to be believed, or TLS failed otherwise
        UpstreamClosedError    closed or reset before the answer was complete
        UpstreamTimeout        connect, first byte, idle or total time ran out
        UpstreamProtocolError  the answer is not HTTP, or frames itself in two ways
        UpstreamBusyError      every connection is in use and the queue for one is full
        UpstreamBreakerError   the circuit breaker is open
        UpstreamTargetError    all targets are left out
      LimitExceeded            nobody: in the library, what may not go (`gateway.library.decision`)
      ClientError              the peer: .status says what it is told
        BadRequestError        400 and its kin: what was sent cannot be one request

Being over a limit is not an error but a value (`gateway.limits.decision.Decision`).
Exceptions of other libraries are mapped to these in the one module that imports the library.
"""

from __future__ import annotations

from dataclasses import dataclass


class GatewayError(Exception):
    """Root of the tree; nothing raises it itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration.

    Attributes:
        file: the file as the user named it.
        line: line, counted from 1; 0 where the problem has no place in the text.
        column: column, counted from 1; 0 likewise.
        path: the key, dotted and with indexes in brackets, such as `routes./v1/pay.limit`.
        message: what was found and why it will not do.
        hint: what would do, perhaps with the nearest valid word; may be empty.
        source: the line of the file, for display, or what of it is around the column; may be
            empty.
        source_column: the column at which `source` begins.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""
    source: str = ""
    source_column: int = 1

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        where = f" {self.path}:" if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}:{where} {self.message}{hint}"


class ConfigError(GatewayError):
    """A configuration that cannot be used, with every problem that was found in it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class LimitSyntaxError(ConfigError):
    """A limit line that cannot be read.

    Attributes:
        column: where in the line the trouble begins, counted from 1.
        found: the word that was found there.
        hint: what would do.
    """

    def __init__(self, text: str, column: int, message: str, hint: str = "") -> None:
        super().__init__([Problem("limit", 1, column, "", message, hint, text)])
        self.text = text
        self.column = column
        self.reason = message
        self.hint = hint


class StartError(GatewayError):
    """A valid configuration that cannot be run on this machine, or not now.

    Attributes:
        path: the key to blame, as in `Problem`.
        message: what could not be done.
        hint: a way out; may be empty.
    """

    def __init__(self, path: str, message: str, hint: str = "") -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.hint = hint


class StoreError(GatewayError):
    """The store could not decide. `reason` is a short label for metrics and logs."""

    reason = "error"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class StoreTimeout(StoreError):
    """The store did not answer within the deadline."""

    reason = "timeout"


class StoreUnavailable(StoreError):
    """The store is not connected, or answers that it cannot serve now."""

    reason = "unavailable"


class StoreReplyError(StoreError):
    """The store answered something that cannot be understood."""

    reason = "reply"


class UpstreamError(GatewayError):
    """The upstream did not give a whole, valid answer.

    Attributes:
        status: what the client is told.
        title: constant, short text for the problem document.
        kind: a label for metrics and logs.
        retry_after_us: microseconds after which a client may ask again; 0 to say nothing of it.
    """

    status = 502
    title = "The upstream failed"
    kind = "error"
    retry_after_us = 0


class UpstreamConnectError(UpstreamError):
    """No connection could be made."""

    title = "The upstream could not be reached"
    kind = "connect"


class UpstreamTlsError(UpstreamConnectError):
    """A connection was made, and TLS could not be agreed on: a bad certificate, mostly."""

    title = "The upstream could not be reached securely"
    kind = "tls"


class UpstreamClosedError(UpstreamError):
    """The connection ended before the answer was complete."""

    title = "The upstream closed the connection before its answer was complete"
    kind = "closed"


class UpstreamTimeout(UpstreamError):
    """A time limit ran out; `phase` is connect, first_byte, idle, total or queue."""

    status = 504
    title = "The upstream did not answer in time"
    kind = "timeout"

    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        if phase == "queue":
            # Not the upstream was slow, but there were too many requests before this one.
            self.status = UpstreamBusyError.status
            self.title = UpstreamBusyError.title
            self.retry_after_us = UpstreamBusyError.retry_after_us
        self.phase = phase
        self.kind = f"timeout_{phase}"


class UpstreamProtocolError(UpstreamError):
    """What came back is not one valid HTTP answer."""

    title = "The upstream sent an invalid answer"
    kind = "protocol"


class UpstreamBusyError(UpstreamError):
    """Every connection to the upstream is in use and no more requests may wait for one."""

    status = 503
    title = "The upstream has no free connection"
    kind = "busy"
    retry_after_us = 1_000_000


class UpstreamBreakerError(UpstreamError):
    """The upstream's circuit breaker is open."""

    status = 503
    title = "The upstream is given time to recover"
    kind = "breaker_open"

    def __init__(self, retry_after_us: int) -> None:
        super().__init__(self.kind)
        self.retry_after_us = retry_after_us


class UpstreamTargetError(UpstreamError):
    """All targets of the upstream are left out."""

    status = 503
    title = "No target of the upstream is healthy"
    kind = "no_target"

    def __init__(self, retry_after_us: int) -> None:
        super().__init__(self.kind)
        self.retry_after_us = retry_after_us


CLIENT_ERRORS = (
    "body_timeout",
    "expect",
    "framing",
    "handshake",
    "handshake_timeout",
    "header_timeout",
    "hops",
    "host",
    "key",
    "loop",
    "method",
    "no_route",
    "path",
    "proxy_header",
    "send_timeout",
    "syntax",
    "target",
    "too_large",
    "version",
)
"""Every `kind` of a `ClientError`, and of what else is a client's fault."""


class ClientError(GatewayError):
    """The client is to blame.

    Attributes:
        status: what the client is told.
        title: why; constant text.
        kind: one of `CLIENT_ERRORS`, a label for metrics and logs.
        closes: whether the connection ends with the request, because it is not certain where the
            next one would begin.
        fields: more header lines of the response, each with its line end.
    """

    closes = False
    fields = b""
    status = 400
    title = "The request is not valid"
    kind = "syntax"


class BadRequestError(ClientError):
    """What was sent cannot be read as one request in one way."""

    def __init__(
        self,
        title: str,
        status: int = 400,
        *,
        kind: str = "syntax",
        closes: bool = False,
        fields: bytes = b"",
    ) -> None:
        super().__init__(title)
        self.title = title
        self.status = status
        self.kind = kind
        self.closes = closes
        self.fields = fields
