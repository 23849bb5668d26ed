"""Reloads of one process: one at a time, none in vain, and every fault told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.admin import ReloadOutcome, ReloadRecord
from gateway.base.errors import ConfigError, GatewayError, Problem, StartError
from gateway.config.checking.check import Checked, check_text
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.redaction import Secrets
from gateway.net.service_manager import ServiceManager
from gateway.observe.metrics import GatewayMetrics
from gateway.wiring.reloading import Reloader, is_same, renew_only
from tests.servers import until
from tests.workers.succession import Manager

TEXT = "routes:\n  /{name}: {{ upstream: 'http://a:1', limit: 1/s }}\n"


def checked(name: str) -> Checked:
    """A configuration with one route."""
    return check_text(TEXT.format(name=name))


class _Files:
    """Configurations to load, each when the test says so."""

    name = "sluice.yaml"
    loaded = b"1"

    def __init__(self) -> None:
        self.next: Checked | Exception = checked("a")
        self.loads = 0
        self.may_load = threading.Event()
        self.may_load.set()

    def load(self) -> Checked:
        self.loads += 1
        assert self.may_load.wait(20)
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def digest(self) -> bytes:
        return self.loaded


class _Gateway:
    """A gateway that only takes configurations."""

    def __init__(self) -> None:
        self.config: GatewayConfig = checked("a").config
        self.reloads = ReloadRecord(GatewayMetrics())
        self.fault: Exception | None = None
        self.taken = 0
        self.renewals = 0

    async def reload(self, config: GatewayConfig) -> None:
        if self.fault is not None:
            raise self.fault
        self.taken += 1
        self.config = config

    def renew_certificates(self) -> None:
        self.renewals += 1


@asynccontextmanager
async def reloader(gateway: _Gateway, files: _Files) -> AsyncIterator[Reloader]:
    """One that has started."""
    one = Reloader(gateway, files, Secrets())
    one.start()
    try:
        yield one
    finally:
        files.may_load.set()
        await one.end()


async def test_the_same_configuration_is_not_applied() -> None:
    """Nothing is swapped, but certificates are looked at."""
    gateway, files = _Gateway(), _Files()
    async with reloader(gateway, files) as one:
        assert await one.reload() == ReloadOutcome(True, (), ())
    assert (gateway.taken, gateway.renewals) == (0, 1)


async def test_another_configuration_is_applied() -> None:
    """The outcome has sentences of what changed."""
    gateway, files = _Gateway(), _Files()
    files.next = checked("b")
    async with reloader(gateway, files) as one:
        outcome = await one.reload()
    assert outcome.is_applied
    assert any("/b" in change for change in outcome.changes)
    assert gateway.config is files.next.config


async def test_reloads_that_wait_are_one() -> None:
    """Of ten requests during a reload, all get the outcome of one more, begun after them."""
    gateway, files = _Gateway(), _Files()
    files.may_load.clear()
    async with reloader(gateway, files) as one:
        first = asyncio.create_task(one.reload())
        await until(lambda: files.loads == 1)
        later = [asyncio.create_task(one.reload()) for _ in range(10)]
        one.ask()
        await asyncio.sleep(0)
        files.may_load.set()
        await first
        await asyncio.gather(*later)
    assert files.loads == 2


async def test_a_caller_that_leaves_stops_nothing() -> None:
    """The reload goes on to its end."""
    gateway, files = _Gateway(), _Files()
    files.next = checked("b")
    files.may_load.clear()
    async with reloader(gateway, files) as one:
        caller = asyncio.create_task(one.reload())
        await until(lambda: files.loads == 1)
        caller.cancel()
        await asyncio.wait({caller})
        files.may_load.set()
        await until(lambda: gateway.taken == 1)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (
            StartError("listen", "it is in use", "another"),
            Problem("sluice.yaml", 0, 0, "listen", "it is in use", "another"),
        ),
        (GatewayError("no"), Problem("sluice.yaml", 0, 0, "", "no")),
    ],
)
async def test_what_the_gateway_cannot_use_is_a_problem(fault: Exception, problem: Problem) -> None:
    """With the file, the key and the fix; the next reload may succeed."""
    gateway, files = _Gateway(), _Files()
    files.next = checked("b")
    gateway.fault = fault
    async with reloader(gateway, files) as one:
        assert await one.reload() == ReloadOutcome(False, (problem,), ())
        gateway.fault = None
        assert (await one.reload()).is_applied


async def test_a_file_that_cannot_be_used_is_not_applied() -> None:
    """The gateway is not even asked."""
    gateway, files = _Gateway(), _Files()
    problem = Problem("a.yaml", 1, 1, "", "wrong")
    files.next = ConfigError([problem])
    async with reloader(gateway, files) as one:
        assert await one.reload() == ReloadOutcome(False, (problem,), ())
    assert gateway.taken == 0


@pytest.mark.parametrize("is_in_file", [True, False])
async def test_a_fault_of_the_program_is_told_as_well(
    caplog: pytest.LogCaptureFixture,
    is_in_file: bool,
) -> None:
    """With its traceback in the log, and without it elsewhere."""
    gateway, files = _Gateway(), _Files()
    files.next = checked("b")
    if is_in_file:
        files.next = RuntimeError("a fault")
    else:
        gateway.fault = RuntimeError("a fault")
    async with reloader(gateway, files) as one:
        outcome = await one.reload()
    assert not outcome.is_applied
    assert "a fault" not in str(outcome)
    assert any(record.exc_info is not None for record in caplog.records)
    assert gateway.reloads.document["problem"]


async def test_nothing_is_reloaded_before_the_start_and_after_the_end() -> None:
    """What is asked for before waits; what is asked for at the end is told that it is too late."""
    gateway, files = _Gateway(), _Files()
    one = Reloader(gateway, files, Secrets())
    one.ask()
    early = asyncio.create_task(one.reload())
    for _ in range(10):
        await asyncio.sleep(0)
    assert files.loads == 0
    one.start()
    assert (await early).is_applied
    await one.end()
    late = await one.reload()
    assert not late.is_possible
    assert "stopping" in late.problems[0].message
    assert files.loads == 1


async def test_a_reload_in_progress_ends_before_the_gateway_stops() -> None:
    """So the gateway stops with one configuration or the other, never between."""
    gateway, files = _Gateway(), _Files()
    files.next = checked("b")
    files.may_load.clear()
    one = Reloader(gateway, files, Secrets())
    one.start()
    asking = asyncio.create_task(one.reload())
    await until(lambda: files.loads == 1)
    ending = asyncio.create_task(one.end())
    await asyncio.sleep(0)
    assert not ending.done()
    files.may_load.set()
    await ending
    assert (await asking).is_applied
    assert gateway.taken == 1


async def test_secrets_of_both_configurations_are_hidden() -> None:
    """Whichever of the two a sentence quotes."""
    gateway, files = _Gateway(), _Files()
    secrets = Secrets()
    secrets.add("/old-name")
    gateway.config = checked("old-name").config
    files.next = checked("new-name")
    files.next.secrets.add("/new-name")
    one = Reloader(gateway, files, secrets)
    one.start()
    outcome = await one.reload()
    await one.end()
    assert outcome.changes
    assert "-name" not in " ".join(outcome.changes)


def test_options_that_are_left_out_differ_from_those_that_are_written() -> None:
    """`deadline` of workers depends on it."""
    plain, written = (
        check_text(f"store: {{ {more} }}\n" + TEXT.format(name="a")).config
        for more in ("share: auto", "share: auto, deadline: 20ms")
    )
    assert plain == written
    assert not is_same(plain, written)
    assert is_same(plain, check_text("store: { share: auto }\n" + TEXT.format(name="a")).config)


def test_the_order_of_routes_counts() -> None:
    """And so does that of mappings."""
    texts = (
        "routes:\n  /a: { upstream: 'http://a:1' }\n  /b: { upstream: 'http://a:1' }\n",
        "routes:\n  /b: { upstream: 'http://a:1' }\n  /a: { upstream: 'http://a:1' }\n",
    )
    one, other = (check_text(text).config for text in texts)
    assert not is_same(one, other)


def test_without_files_only_certificates_are_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so; a service manager hears that it is done."""
    gateway, address = _Gateway(), str(tmp_path / "notify")
    with Manager(address) as manager:
        renew_only(gateway, ServiceManager(address))
        manager.wait_for(READY="1")
        assert manager.said == [{"RELOADING": "1"}, {"READY": "1"}]
    assert gateway.renewals == 1
    assert "certificates only" in caplog.text


async def test_a_reload_that_is_held_begins_later(caplog: pytest.LogCaptureFixture) -> None:
    """The log says what it waits for."""
    caplog.set_level(logging.INFO)
    gateway, files = _Gateway(), _Files()
    async with reloader(gateway, files) as one:
        async with one.held("it waits"):
            asked = asyncio.create_task(one.reload())
            await until(lambda: "it waits" in caplog.text)
            assert not one.is_reloading
            assert files.loads == 0
        assert (await asked).is_applied
    assert files.loads == 1


async def test_what_waits_for_a_reload_ends_first(caplog: pytest.LogCaptureFixture) -> None:
    """The reload in progress is not interrupted; the next one waits, and the log says so."""
    caplog.set_level(logging.INFO)
    gateway, files = _Gateway(), _Files()
    files.may_load.clear()
    async with reloader(gateway, files) as one:
        first = asyncio.create_task(one.reload())
        await until(lambda: files.loads == 1)
        assert one.is_reloading
        is_held = asyncio.Event()

        async def hold() -> None:
            async with one.held("it waits"):
                is_held.set()
                await until(lambda: "it waits" in caplog.text)

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0)
        second = asyncio.create_task(one.reload())
        await asyncio.sleep(0)
        assert not is_held.is_set()
        files.may_load.set()
        assert (await first).is_applied
        await holding
        assert (await second).is_applied
    assert files.loads == 2


async def test_a_reload_that_will_not_begin_says_why() -> None:
    """Whoever requested it hears the reason, and the caller that there was such a request."""
    gateway, files = _Gateway(), _Files()
    async with reloader(gateway, files) as one:
        async with one.held("it waits"):
            asked = asyncio.create_task(one.reload())
            await asyncio.sleep(0)
            assert one.stop("another process serves")
        outcome = await asked
        assert not outcome.is_possible
        assert outcome.problems[0].message == "another process serves"
        assert not one.stop()
        assert (await one.reload()).problems[0].message == "another process serves"
    assert files.loads == 0
