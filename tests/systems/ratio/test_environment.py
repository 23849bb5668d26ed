"""The variables of `sluice ratio`: ratio's own, with its defaults and its ways to write things."""

from __future__ import annotations

import pytest

from gateway.base.errors import ConfigError, StartError
from gateway.config.values.address import Address
from gateway.systems.ratio.environment import read_environment, told_of

MINUTE_US = 60_000_000


def test_without_variables_all_is_as_with_ratio() -> None:
    """Port 50051 of every address, a Redis named redis, 100 a minute, errors without the store.

    Nothing decides in its place, so it has time.
    """
    config, warnings = read_environment({"HOME": "/root", "RATIO_PORT": ""})
    (listener,) = config.listeners
    assert listener.kind == "ratio"
    assert listener.address == Address("", 50051)
    assert listener.ratio is not None
    assert listener.ratio.connection_timeout == 1_000_000
    assert (config.store.url, config.store.deadline) == ("redis://redis:6379/0", 1_000_000)
    assert (config.domain, config.admin, config.routes, config.listen) == ("ratio", None, (), ())
    assert warnings == []
    policy = config.policies["ratio"]
    assert (policy.on_store_error, policy.count_refused) == ("closed", True)
    limit = policy.limits[0].limit
    assert limit.algorithm == "sliding_window_log"
    assert (limit.count, limit.period_us) == (100, MINUTE_US)


@pytest.mark.parametrize(
    ("text", "count", "period_us"),
    [
        ("100/m", 100, MINUTE_US),
        ("5/minute", 5, MINUTE_US),
        ("5/MINUTE", 5, MINUTE_US),
        ("7/h", 7, 60 * MINUTE_US),
        ("7/hour", 7, 60 * MINUTE_US),
        ("7/HOUR", 7, 60 * MINUTE_US),
        ("9/d", 9, 1_440 * MINUTE_US),
        ("9/day", 9, 1_440 * MINUTE_US),
        ("9/DAY", 9, 1_440 * MINUTE_US),
        ("10/s", 10, 1_000_000),
        ("30/5m", 30, 5 * MINUTE_US),
    ],
)
def test_limits_are_written_as_for_ratio_or_as_everywhere(
    text: str, count: int, period_us: int
) -> None:
    """A day has 24 hours here; with ratio it had 60."""
    limit = read_environment({"RATIO_LIMIT": text}).config.policies["ratio"].limits[0].limit
    assert (limit.count, limit.period_us) == (count, period_us)


@pytest.mark.parametrize(
    ("text", "timeout_us"),
    [
        ("1s", 1_000_000),
        ("500ms", 500_000),
        ("1m30s", 90_000_000),
        ("1.5h", 5_400_000_000),
        (".5s", 500_000),
        ("20us", 20),
        ("20µs", 20),
        ("5ns", 1),
    ],
)
def test_durations_are_written_as_go_does(text: str, timeout_us: int) -> None:
    """Several numbers with units may follow each other."""
    config = read_environment({"RATIO_CONNECTION_TIMEOUT": text}).config
    assert config.listeners[0].ratio is not None
    assert config.listeners[0].ratio.connection_timeout == timeout_us


@pytest.mark.parametrize(
    ("storage", "url"),
    [
        ("inmemory://", "memory://"),
        ("redis://127.0.0.1:6380/3", "redis://127.0.0.1:6380/3"),
        ("mysql://u:p@db/x", "mysql://u:p@db/x"),
        ("redis://redis/0?ratio=ratio", "redis://redis/0?ratio=ratio"),
    ],
)
def test_storage_is_ratios_or_any_store_of_ours(storage: str, url: str) -> None:
    """The number of a database counts, as it did not with ratio."""
    assert read_environment({"RATIO_STORAGE": storage}).config.store.url == url


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", Address("127.0.0.1", 1)), ("::1", Address("::1", 1)), ("", Address("", 1))],
)
def test_the_host_may_be_said(host: str, address: Address) -> None:
    """Every address if it is not, as with ratio."""
    config = read_environment({"RATIO_HOST": host, "RATIO_PORT": "1"}).config
    assert config.listeners[0].address == address


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RATIO_PORT", "http", "'http' is not a port"),
        ("RATIO_PORT", "65536", "'65536' is not a port"),
        ("RATIO_CONNECTION_TIMEOUT", "1", "'1' is not a duration"),
        ("RATIO_CONNECTION_TIMEOUT", "0s", "'0s' is not a duration"),
        ("RATIO_CONNECTION_TIMEOUT", "1s x", "'1s x' is not a duration"),
        ("RATIO_CONNECTION_TIMEOUT", "9999999h", "'9999999h' is not a duration"),
        ("RATIO_STORAGE", "redsi://x", "'redsi' is not a kind of store"),
        ("RATIO_STORAGE", "throttr+v5://x", "a Throttr server does not count refused requests"),
        ("RATIO_STORAGE", "redis://redis/0?ratio=x", "there is no policy 'x'"),
        ("RATIO_STORAGE", "inmemory://x", "the memory store has no address"),
        ("RATIO_LIMIT", "100", "'/' and a unit of time are missing; found nothing"),
        ("RATIO_LIMIT", "5/Minute", "'Minute' is not a unit of time"),
        ("RATIO_LIMIT", "5/s per ip+route", "clients of ratio"),
        ("RATIO_HOST", "a b", "'a b' is not a host name"),
        ("SLUICE_DOMAIN", "a b", "'a b' is not a valid domain"),
        ("SLUICE_ADMIN", "x", "'x' has no port"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_variable(name: str, value: str, message: str) -> None:
    """And nothing else is blamed."""
    with pytest.raises(ConfigError) as error:
        read_environment({name: value})
    (problem,) = error.value.problems
    assert (problem.file, problem.path) == ("environment", name)
    assert message in problem.message
    assert problem.hint


def test_all_that_is_wrong_is_told_at_once() -> None:
    """As with files."""
    with pytest.raises(ConfigError) as error:
        read_environment({"RATIO_STORAGE": "x://", "RATIO_LIMIT": "5/week"})
    assert {one.path for one in error.value.problems} == {"RATIO_STORAGE", "RATIO_LIMIT"}


def test_a_password_is_not_repeated() -> None:
    """Messages about a URL go to logs."""
    with pytest.raises(ConfigError) as error:
        read_environment({"RATIO_STORAGE": "redis://:s3cret@host:x/0"})
    assert "s3cret" not in str(error.value)


def test_a_variable_that_nothing_reads_is_told() -> None:
    """A slip of the pen would be found out in production only."""
    (warning,) = read_environment({"RATIO_LIMITS": "5/m"}).warnings
    assert (warning.path, warning.hint) == ("RATIO_LIMITS", "did you mean RATIO_LIMIT?")


@pytest.mark.parametrize(
    ("path", "message", "name"),
    [
        ("listeners[0].bind", ":50051 is already in use", "RATIO_PORT"),
        ("listeners[0].bind", "the host 'x' is not known", "RATIO_HOST"),
        ("store.url", "the URL of the store cannot be used", "RATIO_STORAGE"),
        ("admin.listen", "in use", "SLUICE_ADMIN"),
        ("listeners[0]", "ratio needs a library that is not installed: grpc", ""),
    ],
)
def test_what_keeps_it_from_starting_is_told_with_its_variable(
    path: str, message: str, name: str
) -> None:
    """There is no file in which to look."""
    (problem,) = told_of(StartError(path, message, "a hint")).problems
    assert (problem.path, problem.message, problem.hint) == (name, message, "a hint")
