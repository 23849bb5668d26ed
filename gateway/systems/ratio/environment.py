"""The configuration of `sluice ratio`: the environment variables of ratio's own server.

From ratio: `RATIO_PORT`, `RATIO_CONNECTION_TIMEOUT`, `RATIO_STORAGE` and `RATIO_LIMIT`, with its
defaults. Additional: `RATIO_HOST`, `SLUICE_DOMAIN` and `SLUICE_ADMIN`.

If the store is unavailable, every call fails, as with ratio.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from gateway.base.errors import ConfigError, Problem, StartError
from gateway.config.checking import cross
from gateway.config.checking.capabilities import unsupported
from gateway.config.checking.messages import words_for
from gateway.config.models.gateway import GatewayConfig
from gateway.config.reading.substitute import is_utf8
from gateway.config.values.findings import Finding
from gateway.config.values.redaction import redact

DEFAULTS: Final[Mapping[str, str]] = {
    "RATIO_PORT": "50051",
    "RATIO_CONNECTION_TIMEOUT": "1s",
    "RATIO_STORAGE": "redis://redis:6379/0",
    "RATIO_LIMIT": "100/m",
    "RATIO_HOST": "",
    "SLUICE_DOMAIN": "ratio",
    "SLUICE_ADMIN": "off",
}
"""Every variable, and its default if it is not set or empty. An empty host means all addresses."""

DEADLINE: Final = "1s"
"""How long a call may wait for the store; then it fails. ratio's callers wait three seconds for
each command to its Redis.
"""

WHERE: Final = "environment"
"""The name of the file in problems with variables."""

_PLACES: Final[tuple[tuple[tuple[str | int, ...], str], ...]] = (
    (("listeners", 0, "ratio", "connection_timeout"), "RATIO_CONNECTION_TIMEOUT"),
    (("listeners", 0, "bind"), "RATIO_HOST"),
    (("listeners",), "RATIO_LIMIT"),
    (("policies",), "RATIO_LIMIT"),
    (("store",), "RATIO_STORAGE"),
    (("domain",), "SLUICE_DOMAIN"),
    (("admin",), "SLUICE_ADMIN"),
)
"""The variable of each part of the configuration; the first match applies."""

_MEMORY: Final = "inmemory://"
_UPPER: Final = re.compile(r"[0-9]+/(DAY|HOUR|MINUTE)")
"""Units that ratio knows and limit lines do not."""
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|μs|ms|s|m|h)")
_UNITS_NS: Final[Mapping[str, int]] = {
    "ns": 1,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    **dict.fromkeys(("us", "µs", "μs"), 1_000),
}
_TOO_LONG_NS: Final = 1_000_000 * _UNITS_NS["h"]
"""Longer than any real duration, and than other options accept."""


class Environment(NamedTuple):
    """The configuration from the variables.

    Attributes:
        config: the gateway.
        warnings: variables whose value is probably a mistake.
    """

    config: GatewayConfig
    warnings: list[Problem]


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Return the configuration from variables.

    Raises:
        ConfigError: with every variable that cannot be used.
    """
    said = {name: environ.get(name) or default for name, default in DEFAULTS.items()}
    problems = list(_unreadable(said))
    if problems:
        raise ConfigError(problems)
    try:
        config = GatewayConfig.model_validate(_data(said))
    except ValidationError as error:
        details = error.errors(include_url=False)
        # A line that cannot be read is also missing from its list.
        news = (one for one in details if one["type"] != "too_short")
        found = (finding for one in news for finding in words_for(one))
        raise ConfigError(list(_problems(found))) from error
    unfit = list(_problems(cross.unfit_for_callers(config)))
    if unfit:
        raise ConfigError(unfit)
    for misfit in unsupported(config):
        hint = "redis://, mysql://, ratio:// or inmemory://"
        raise ConfigError([Problem(WHERE, 0, 0, "RATIO_STORAGE", misfit.message, hint)])
    return Environment(config, list(_unknown(environ)))


def told_of(error: StartError) -> ConfigError:
    """Return why the gateway cannot start, with the variable to change."""
    if error.path == "listeners[0]":
        # A library is not installed: no variable changes that.
        return ConfigError([Problem(WHERE, 0, 0, "", error.message, error.hint)])
    path: tuple[str | int, ...] = ("listeners", 0, "bind")
    if not error.path.startswith("listeners"):
        path = (error.path.partition(".")[0],)
    variable = _variable(path)
    if variable == "RATIO_HOST" and ("in use" in error.message or "may not" in error.message):
        variable = "RATIO_PORT"
    return ConfigError([Problem(WHERE, 0, 0, variable, error.message, error.hint)])


def _unreadable(said: Mapping[str, str]) -> Iterator[Problem]:
    """Yield problems with values that no field of the configuration would accept."""
    for name, value in said.items():
        if not is_utf8(value):
            yield Problem(WHERE, 0, 0, name, "this is not UTF-8", "text in UTF-8")
    port = said["RATIO_PORT"]
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        message = f"{port!r} is not a port"
        yield Problem(WHERE, 0, 0, "RATIO_PORT", message, "a whole number up to 65535")
    timeout = said["RATIO_CONNECTION_TIMEOUT"]
    if not 0 < _duration_ns(timeout) < _TOO_LONG_NS:
        message = f"{timeout!r} is not a duration"
        yield Problem(WHERE, 0, 0, "RATIO_CONNECTION_TIMEOUT", message, "such as 500ms or 1m30s")


def _data(said: Mapping[str, str]) -> dict[str, Any]:
    limit, storage, host = said["RATIO_LIMIT"], said["RATIO_STORAGE"], said["RATIO_HOST"]
    if _UPPER.fullmatch(limit):
        limit = limit.lower()
    if storage.startswith(_MEMORY):
        storage = f"memory://{storage.removeprefix(_MEMORY)}"
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    timeout_us = max(_duration_ns(said["RATIO_CONNECTION_TIMEOUT"]) // 1_000, 1)
    ratio = {"limit": limit, "on_store_error": "closed", "connection_timeout": f"{timeout_us}us"}
    return {
        "listeners": [{"ratio": ratio, "bind": f"{host}:{said['RATIO_PORT']}"}],
        "store": {"url": storage, "deadline": DEADLINE},
        "domain": said["SLUICE_DOMAIN"],
        "admin": said["SLUICE_ADMIN"],
    }


def _duration_ns(text: str) -> int:
    """Return the nanoseconds of a duration of Go: `1s`, `1m30s`, `1.5h`; 0 if it is invalid."""
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return 0
    return int(sum(Decimal(number) * _UNITS_NS[unit] for number, unit in parts))


def _problems(findings: Iterable[Finding]) -> Iterator[Problem]:
    seen = set()
    for finding in findings:
        problem = Problem(
            WHERE, 0, 0, _variable(finding.path), redact(finding.message), finding.hint
        )
        if problem not in seen:
            seen.add(problem)
            yield problem


def _variable(path: tuple[str | int, ...]) -> str:
    return next(name for place, name in _PLACES if path[: len(place)] == place)


def _unknown(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield names that look like one of the variables and are not."""
    for name in environ:
        if name.startswith("RATIO_") and name not in DEFAULTS:
            near = get_close_matches(name, DEFAULTS, 1)
            names = ", ".join(known for known in DEFAULTS if known.startswith("RATIO_"))
            hint = f"did you mean {near[0]}?" if near else f"known are {names}"
            yield Problem(WHERE, 0, 0, name, "unknown variable", hint)
