"""One log line per request.

The content of a line is an `AccessEntry`; fields that do not apply are empty or -1, and are
omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from gateway.base.clock import Clock, wall_us
from gateway.observe.logs.escape import (
    LogFormat,
    Timestamp,
    is_word,
    json_string,
    milliseconds,
    quote,
    word,
)

DECISIONS: Final = ("pass", "delay", "refuse", "skip", "error", "none")
"""Values of `decision`; none means that no policy applied to the request."""


@dataclass(slots=True)
class AccessEntry:
    """One request in the access log, with its fields in the order of the line.

    Attributes:
        client: the address that the request is counted for.
        method: as sent.
        host: as sent.
        path: the request target as sent, with its query.
        route: the route's name; empty if none matches.
        policy: the name of the policy that decided; empty if there is none.
        decision: one of `DECISIONS`.
        wait_us: how long the request waited for its turn.
        upstream: the target that the request went to; empty if it went to none.
        upstream_us: from sending it there to the first byte of the response; -1 if there was none.
        status: the status of the response; 0 if the client left before there was one.
        body_bytes: bytes of body sent to the client.
        duration_us: from the request's head to the last byte of the response.
        error: the kind of error; empty if there was none.
        bytes_received: bytes that the client sent through a WebSocket; -1 for other requests.
        trials: what policies that are not enforced would have done, such as `pay=refuse,all=pass`.
    """

    client: str = ""
    method: str = ""
    host: str = ""
    path: str = ""
    route: str = ""
    policy: str = ""
    decision: str = "none"
    wait_us: int = 0
    upstream: str = ""
    upstream_us: int = -1
    status: int = 0
    body_bytes: int = 0
    duration_us: int = 0
    error: str = ""
    bytes_received: int = -1
    trials: str = ""


_GAP: Final = "\0"
"""Stands for a text that a line lacks: in a line itself, it would be escaped."""

_TEXTS: Final = (
    *("client", "method", "host", "path", "route"),
    *("policy", "decision", "upstream", "error", "trials"),
)


class AccessLog:
    """Writes the lines of requests.

    Args:
        write: receives one whole line with its end; `LineWriter.write`.
        log_format: `json` or `text`.
        clock: wall clock, in microseconds since 1970.
    """

    __slots__ = ("_clock", "_duration", "_line", "_time", "_write")

    def __init__(
        self, write: Callable[[str], None], log_format: LogFormat, clock: Clock = wall_us
    ) -> None:
        self._write = write
        self._clock = clock
        self._time = Timestamp()
        self._line = _json_line if log_format == "json" else _text_line
        self._duration = milliseconds if log_format == "json" else _in_column

    def log(self, entry: AccessEntry) -> None:
        """Write the line of one request; called when its response is complete or abandoned."""
        time, duration = self._time.text(self._clock()), self._duration(entry.duration_us)
        self._write(self._line(time, duration, entry))

    def repeat(self, entry: AccessEntry) -> Callable[[int], None]:
        """Prepare lines that differ from that of `entry` only in time and duration.

        Returns a function that writes one such line, given the duration.
        """
        before, middle, after = self._line(_GAP, _GAP, entry).split(_GAP)

        def write(duration_us: int) -> None:
            time, duration = self._time.text(self._clock()), self._duration(duration_us)
            self._write(f"{before}{time}{middle}{duration}{after}")

        return write


@lru_cache(maxsize=1024)
def _circumstances(route: str, policy: str, decision: str, upstream: str, error: str) -> str:
    """Return the part of a JSON line that few requests differ in."""
    names = ("route", "policy", "decision", "upstream", "error")
    values = (route, policy, decision, upstream, error)
    return "".join(
        f',"{name}":{json_string(value)}'
        for name, value in zip(names, values, strict=True)
        if value
    )


def _json_line(
    time: str, duration: str, entry: AccessEntry, quoted: Callable[[str], str] = quote
) -> str:
    wait_us, upstream_us, bytes_received = entry.wait_us, entry.upstream_us, entry.bytes_received
    upstream_time = f',"upstream_ms":{milliseconds(upstream_us)}' if upstream_us >= 0 else ""
    received = f',"bytes_received":{bytes_received}' if bytes_received >= 0 else ""
    shadow = f',"shadow":{quoted(entry.trials)}' if entry.trials else ""
    line = (
        f'{{"time":"{time}","client":{quoted(entry.client)},"method":{quoted(entry.method)},'
        f'"host":{quoted(entry.host)},"path":{quoted(entry.path)}'
        f"{_circumstances(entry.route, entry.policy, entry.decision, entry.upstream, entry.error)}"
        f',"wait_ms":{milliseconds(wait_us) if wait_us else "0.000"}{upstream_time},'
        f'"status":{entry.status},"bytes":{entry.body_bytes}{received}{shadow}'
        f',"duration_ms":{duration}}}\n'
    )
    if "\\ud" in line and quoted is quote:
        # Perhaps a surrogate.
        return _json_line(time, duration, entry, json_string)
    return line


def _text_line(time: str, duration: str, entry: AccessEntry) -> str:
    if not is_word(
        f"{entry.client}{entry.method}{entry.host}{entry.path}{entry.route}{entry.policy}"
        f"{entry.decision}{entry.upstream}{entry.error}{entry.trials}"
    ):
        texts = {name: getattr(entry, name) for name in _TEXTS}
        words: dict[str, Any] = {name: word(text) for name, text in texts.items() if text}
        entry = replace(entry, **words)
    line = (
        f"{time} {entry.status:>3} {entry.decision:<6} {duration}ms "
        f"{entry.client or '-':<15} {entry.method or '-':<6} "
        f"{entry.host or '-'} {entry.path or '-'}"
    )
    if entry.route:
        line += f" route={entry.route}"
    if entry.policy:
        line += f" policy={entry.policy}"
    if entry.trials:
        line += f" shadow={entry.trials}"
    if entry.wait_us:
        line += f" wait={milliseconds(entry.wait_us)}ms"
    if entry.upstream:
        line += f" upstream={entry.upstream}"
        if entry.upstream_us >= 0:
            line += f" upstream_time={milliseconds(entry.upstream_us)}ms"
    if entry.bytes_received >= 0:
        line += f" bytes_received={entry.bytes_received}"
    line += f" bytes={entry.body_bytes}"
    return f"{line} error={entry.error}\n" if entry.error else f"{line}\n"


def _in_column(duration_us: int) -> str:
    return f"{milliseconds(duration_us):>9}"
