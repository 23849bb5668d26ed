"""One line for each request.

The values come as plain arguments, in the order in which they stand in the line; an empty
text or -1 says that something does not apply, and its field is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from gateway.base.clock import Clock, wall_us
from gateway.observe.logs.escape import (
    LogFormat,
    Timestamp,
    is_word,
    json_string,
    quote,
    without_surrogates,
    word,
)

DECISIONS: Final = ("pass", "delay", "refuse", "skip", "error", "none")
"""What may stand in `decision`: none is a request that no policy was asked about."""


class AccessLog:
    """Makes lines of requests and hands them on.

    Args:
        write: takes one whole line, its end included; `LineWriter.write`.
        log_format: `json` or `text`.
        clock: wall clock, in microseconds since 1970.
    """

    __slots__ = ("_clock", "_line", "_time", "_write")

    def __init__(
        self, write: Callable[[str], None], log_format: LogFormat, clock: Clock = wall_us
    ) -> None:
        self._write = write
        self._clock = clock
        self._time = Timestamp()
        self._line = _json_line if log_format == "json" else _text_line

    def log(
        self,
        client: str,
        method: str,
        host: str,
        path: str,
        route: str,
        policy: str,
        decision: str,
        wait_us: int,
        upstream: str,
        upstream_us: int,
        status: int,
        body_bytes: int,
        duration_us: int,
        error: str = "",
    ) -> None:
        """Write the line of one request; called when its answer is complete or given up.

        Args:
            client: the address that the request is counted for.
            method: as sent.
            host: as sent.
            path: the request target as sent, with its query.
            route: the route's name; empty where none matches.
            policy: the name of the policy that decided; empty where there is none.
            decision: one of `DECISIONS`.
            wait_us: how long the request waited for its turn.
            upstream: the target that the request went to; empty where it went to none.
            upstream_us: from sending it there to the first byte of the answer; -1 if none came.
            status: the status of the answer; 0 where the client left before there was one.
            body_bytes: bytes of body sent to the client.
            duration_us: from the request's head to the last byte of the answer.
            error: what went wrong, as a short kind; empty where nothing did.
        """
        self._write(
            self._line(
                self._time(self._clock()),
                client,
                method,
                host,
                path,
                route,
                policy,
                decision,
                wait_us,
                upstream,
                upstream_us,
                status,
                body_bytes,
                duration_us,
                error,
            )
        )

    def log_tunnel(self, received: int, *values: Any) -> None:
        """Write the line of a WebSocket that was open until now.

        Args:
            received: bytes that the client has sent through it; `body_bytes` were sent to it.
            values: the arguments of `log`.
        """
        line = self._line(self._time(self._clock()), *values)
        if self._line is _json_line:
            word, text = ',"duration_ms":', f',"bytes_received":{received}'
        else:
            word, text = " bytes=", f" bytes_received={received}"
        # Nothing that a client has sent stands behind the last of these words.
        before, _, after = line.rpartition(word)
        self._write(f"{before}{text}{word}{after}")

    def repeat(
        self,
        client: str,
        method: str,
        host: str,
        path: str,
        route: str,
        policy: str,
        decision: str,
        wait_us: int,
        upstream: str,
        upstream_us: int,
        status: int,
        body_bytes: int,
    ) -> Callable[[int], None]:
        """Prepare lines that differ in time and duration only.

        Arguments as in `log`. What is returned writes one such line, given the duration.
        """
        values = (client, method, host, path, route, policy, decision, wait_us)
        answered = (upstream, upstream_us, status, body_bytes)
        if self._line is not _json_line:
            return partial(self.log, *values, *answered)
        # In JSON, the time is the first value and the duration the last.
        line = _json_line("", *values, *answered, 0, "")
        start = line.index('""') + 1
        middle = line[start : line.rindex(":") + 1]
        before = line[:start]

        def write(duration_us: int) -> None:
            time = self._time(self._clock())
            self._write(f"{before}{time}{middle}{duration_us / 1000:.3f}}}\n")

        return write


@lru_cache(maxsize=1024)
def _circumstances(route: str, policy: str, decision: str, upstream: str, error: str) -> str:
    """The part of a JSON line that few requests differ in."""
    names = ("route", "policy", "decision", "upstream", "error")
    values = (route, policy, decision, upstream, error)
    return "".join(
        f',"{name}":{json_string(value)}'
        for name, value in zip(names, values, strict=True)
        if value
    )


def _json_line(
    time: str,
    client: str,
    method: str,
    host: str,
    path: str,
    route: str,
    policy: str,
    decision: str,
    wait_us: int,
    upstream: str,
    upstream_us: int,
    status: int,
    body_bytes: int,
    duration_us: int,
    error: str,
) -> str:
    upstream_time = f',"upstream_ms":{upstream_us / 1000:.3f}' if upstream_us >= 0 else ""
    line = (
        f'{{"time":"{time}","client":{quote(client)},"method":{quote(method)},'
        f'"host":{quote(host)},"path":{quote(path)}'
        f"{_circumstances(route, policy, decision, upstream, error)}"
        f',"wait_ms":{f"{wait_us / 1000:.3f}" if wait_us else "0.000"}{upstream_time},'
        f'"status":{status},"bytes":{body_bytes},"duration_ms":{duration_us / 1000:.3f}}}\n'
    )
    if "\\ud" in line:
        said = (client, method, host, path)
        client, method, host, path = plain = tuple([without_surrogates(word) for word in said])
        if plain != said:
            more = (route, policy, decision, wait_us, upstream, upstream_us, status, body_bytes)
            return _json_line(time, client, method, host, path, *more, duration_us, error)
    return line


def _text_line(
    time: str,
    client: str,
    method: str,
    host: str,
    path: str,
    route: str,
    policy: str,
    decision: str,
    wait_us: int,
    upstream: str,
    upstream_us: int,
    status: int,
    body_bytes: int,
    duration_us: int,
    error: str,
) -> str:
    if not is_word(f"{client}{method}{host}{path}{route}{policy}{decision}{upstream}{error}"):
        values = (client, method, host, path, route, policy, decision, upstream, error)
        client, method, host, path, route, policy, decision, upstream, error = (
            word(value) if value else "" for value in values
        )
    line = (
        f"{time} {status:>3} {decision:<6} {duration_us / 1000:>9.3f}ms "
        f"{client or '-':<15} {method or '-':<6} {host or '-'} {path or '-'}"
    )
    if route:
        line += f" route={route}"
    if policy:
        line += f" policy={policy}"
    if wait_us:
        line += f" wait={wait_us / 1000:.3f}ms"
    if upstream:
        line += f" upstream={upstream}"
        if upstream_us >= 0:
            line += f" upstream_time={upstream_us / 1000:.3f}ms"
    line += f" bytes={body_bytes}"
    return f"{line} error={error}\n" if error else f"{line}\n"
