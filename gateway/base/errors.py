"""All errors that the gateway raises on purpose, as one tree.

Each branch names the party at fault, which decides how the error is handled::

    GatewayError
      ConfigError              the operator: all problems together; the command exits 1
        LimitSyntaxError       a limit line such as "10/s burts 20"
      StartError               the machine: an address or file is not available; exits 1
      StoreError               the store: the policy's on_store_error applies; never a 500
        StoreTimeout           no reply within the deadline
        StoreUnavailable       not connected, refused, loading, read-only, out of memory
        StoreReplyError        a reply that cannot be parsed
      UpstreamError            the upstream: the client sees 502, 503 or 504
        UpstreamConnectError   refused, unreachable, name not found
          UpstreamTlsError     its certificate was not accepted, or TLS failed otherwise
        UpstreamClosedError    closed or reset before the response was complete
        UpstreamTimeout        connect, first byte, idle or total time ran out
        UpstreamProtocolError  the response is not HTTP, or its framing is ambiguous
        UpstreamBusyError      every connection is in use and the queue for one is full
        UpstreamBreakerError   the circuit breaker is open
        UpstreamTargetError    no target is available
      LimitExceeded            no fault: the library's refusal (`gateway.library.decision`)
      ClientError              the client: .status is the status of the response
        BadRequestError        400 and related: the bytes are not one valid request

Being over a limit is a value, not an error (`gateway.limits.decision.Decision`). Exceptions of
other libraries are mapped to these in the one module that imports the library.
"""

from __future__ import annotations

from dataclasses import dataclass


class GatewayError(Exception):
    """The root of the tree; never raised itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration.

    Attributes:
        file: the file as the user named it.
        line: line, counted from 1; 0 if the problem has no position in the text.
        column: column, counted from 1; 0 likewise.
        path: the key, dotted and with indexes in brackets, such as `routes./v1/pay.limit`.
        message: what was found and why it is wrong.
        hint: how to fix it, perhaps with the nearest valid word; may be empty.
        source: the line of the file, for display, or the part around the column; may be
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
    """A configuration that cannot be used, with all problems found in it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def problems_of(error: GatewayError, file: str) -> tuple[Problem, ...]:
    """Return an error about a configuration as problems.

    Args:
        error: the error; if it names no key, neither does the problem.
        file: the configuration as the user named it.
    """
    if isinstance(error, ConfigError):
        return tuple(error.problems)
    if isinstance(error, StartError):
        return (Problem(file, 0, 0, error.path, error.message, error.hint),)
    return (Problem(file, 0, 0, "", str(error)),)


class LimitSyntaxError(ConfigError):
    """A limit line that is not valid.

    Attributes:
        column: where in the line the problem begins, counted from 1.
        found: the word that was found there.
        hint: how to fix it.
    """

    def __init__(self, text: str, column: int, message: str, hint: str = "") -> None:
        super().__init__([Problem("limit", 1, column, "", message, hint, text)])
        self.text = text
        self.column = column
        self.reason = message
        self.hint = hint


class StartError(GatewayError):
    """A valid configuration that cannot run on this machine, or not at the moment.

    Attributes:
        path: the key at fault, as in `Problem`.
        message: what could not be done.
        hint: how to fix it; may be empty.
    """

    def __init__(self, path: str, message: str, hint: str = "") -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.hint = hint


class UnusableFileError(Exception):
    """A file whose content cannot be used.

    Attributes:
        message: the file, and what is wrong with it.
        hint: how to fix it; may be empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class StoreError(GatewayError):
    """The store could not decide; `reason` is a short label for metrics and logs."""

    reason = "error"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class StoreTimeout(StoreError):
    """The store did not reply within the deadline."""

    reason = "timeout"


class StoreUnavailable(StoreError):
    """The store is not connected, or replies that it cannot serve at the moment."""

    reason = "unavailable"


class StoreReplyError(StoreError):
    """The store sent a reply that cannot be parsed."""

    reason = "reply"


class UpstreamError(GatewayError):
    """The upstream did not send a complete, valid response.

    Attributes:
        status: the status sent to the client.
        title: constant, short text for the problem document.
        kind: a label for metrics and logs.
        retry_after_us: microseconds after which a client may retry; 0 to send no `Retry-After`.
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
    """A connection was made, but the TLS handshake failed, usually because of a certificate."""

    title = "The upstream could not be reached securely"
    kind = "tls"


class UpstreamClosedError(UpstreamError):
    """The connection ended before the response was complete."""

    title = "The upstream closed the connection before its answer was complete"
    kind = "closed"


class UpstreamUnprocessedError(UpstreamClosedError):
    """The upstream says that it has done nothing with the request (RFC 9113, section 8.7)."""

    title = "The upstream refused the request"
    kind = "refused"


class UpstreamTimeout(UpstreamError):
    """A time limit expired; `phase` is connect, first_byte, idle, total or queue."""

    status = 504
    title = "The upstream did not answer in time"
    kind = "timeout"

    def __init__(self, phase: str) -> None:
        super().__init__(phase)
        if phase == "queue":
            # The upstream was not slow: too many requests were waiting before this one.
            self.status = UpstreamBusyError.status
            self.title = UpstreamBusyError.title
            self.retry_after_us = UpstreamBusyError.retry_after_us
        self.phase = phase
        self.kind = f"timeout_{phase}"


class UpstreamProtocolError(UpstreamError):
    """The response is not one valid HTTP response."""

    title = "The upstream sent an invalid answer"
    kind = "protocol"


class UpstreamBusyError(UpstreamError):
    """All connections to the upstream are in use, and no more requests may wait for one."""

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
    """No target of the upstream is available."""

    status = 503
    title = "No target of the upstream is healthy"
    kind = "no_target"

    def __init__(self, retry_after_us: int) -> None:
        super().__init__(self.kind)
        self.retry_after_us = retry_after_us


CLIENT_ERRORS = (
    "body_timeout",
    "denied",
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
"""The `kind` of each `ClientError`, and of other faults of clients."""


class ClientError(GatewayError):
    """The client is at fault.

    Attributes:
        status: the status sent to the client.
        title: the reason; constant text.
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
    """The bytes received cannot be read as exactly one request."""

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
