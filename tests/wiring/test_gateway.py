"""A gateway as a whole, in the test's own loop: it starts, counts, drains and stops."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import StartError
from gateway.observe.metrics import PolicyMetrics
from gateway.stores.redis.store import RedisStore
from tests.breaking import abort
from tests.proxy.wire import (
    OK,
    Peer,
    Running,
    ScriptedUpstream,
    answering,
    get,
    make_gateway,
    post,
    running,
)
from tests.servers import until

NOBODY = "redis://127.0.0.1:1/0"
"""A store that is not there; its module is loaded when it is first used, or above."""
FATES = (
    *("passed", "delayed", "refused", "skipped"),
    *("store_error_passed", "store_error_refused"),
)


def counts(run: Running, policy: str) -> dict[str, int]:
    """What became of a policy's requests; only what is not 0."""
    metrics: PolicyMetrics = run.gateway.metrics.policies[policy]
    assert metrics.waiting == 0
    return {fate: getattr(metrics, fate) for fate in FATES if getattr(metrics, fate)}


def is_ready(run: Running) -> bool:
    """Whether the gateway wants traffic now."""
    return run.gateway.readiness.is_ready


async def test_every_request_counts_once_for_each_policy(tmp_path: Path) -> None:
    """However many limits the policy has."""
    policies: dict[str, Any] = {
        "wide": {"limits": ["100/h", "200/h per all", "300/h per host"]},
        "narrow": {"limits": ["2/h burst 2", "9/h per all"]},
        "keyed": {"limits": ["1/h per header:X-Key"], "if_missing": "skip"},
    }
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies=policies, route={"policies": list(policies)}) as run,
    ):
        statuses = [(await run.ask(get())).status for _ in range(5)]
        assert statuses == [200, 200, 429, 429, 429]
        assert counts(run, "wide") == {"passed": 2}
        assert counts(run, "narrow") == {"passed": 2, "refused": 3}
        assert run.gateway.metrics.routes["/**"].statuses == {200: 2, 429: 3}


async def test_requests_that_wait_count_as_delayed(tmp_path: Path) -> None:
    """Neither as passed nor as refused; those without a place in the queue as refused."""
    # All four have come long before the first turn, on any machine.
    policies = {"p": {"limits": ["2/s burst 1"], "queue": {"max": 2, "max_wait": "5s"}}}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies=policies, route={"policies": ["p"]}) as run,
    ):
        answers = await asyncio.gather(*(run.ask(get()) for _ in range(4)))
        assert sorted(answer.status for answer in answers) == [200, 200, 200, 429]
        assert counts(run, "p") == {"passed": 1, "delayed": 2, "refused": 1}
        assert run.gateway.metrics.policies["p"].wait_us > 100_000


@pytest.mark.parametrize(
    ("on_store_error", "statuses", "expected"),
    [
        ("local", [200, 200, 429], {"store_error_passed": 2, "refused": 1}),
        ("open", [200, 200, 200], {"store_error_passed": 3}),
        ("closed", [503, 503, 503], {"store_error_refused": 3}),
    ],
)
async def test_while_the_store_is_away(
    tmp_path: Path, on_store_error: str, statuses: list[int], expected: dict[str, int]
) -> None:
    """Requests are treated by their policy, never answered with 500, and counted once each."""
    policies = {"p": {"limits": ["2/h", "9/h per all"], "on_store_error": on_store_error}}
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            policies=policies,
            route={"policies": ["p"]},
            store={"url": NOBODY, "share": 1},
            complaint="store unavailable (connect",
        ) as run,
    ):
        assert isinstance(run.gateway._running.decider._store, RedisStore)
        answers = [await run.ask(get()) for _ in range(3)]
        assert [answer.status for answer in answers] == statuses
        assert counts(run, "p") == expected
        if on_store_error == "closed":
            assert answers[0].get(b"Retry-After") == b"1"
            assert json.loads(answers[0].body)["status"] == 503
            assert not run.gateway.readiness.is_ready


async def test_a_client_that_leaves_while_the_store_is_asked(tmp_path: Path) -> None:
    """Its request goes nowhere, and nothing is left of it."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path,
            upstream,
            route={"limit": "9/h"},
            store=NOBODY,
            complaint="store unavailable (connect",
        ) as run,
    ):
        for _ in range(5):
            client = await run.client()
            client.send(get())
            client.close()
        await until(lambda: not run.leftovers())


async def test_a_client_that_leaves_at_once(tmp_path: Path) -> None:
    """Whatever it sent before, whole or not, with a reset or in order."""
    async with answering(OK, pause=0.02) as upstream, running(tmp_path, upstream) as run:
        half = post(b"").replace(b"Length: 0", b"Length: 10")
        for data in (b"", b"GET /", get(), get() * 3, half, half + b"x", post(b"x" * 100_000)):
            for is_broken_off in (False, True):
                client = await run.client()
                client.send(data)
                await asyncio.sleep(0)
                if is_broken_off:
                    abort(client.writer)
                else:
                    client.close()
        await until(lambda: not run.leftovers())
        assert (await run.ask(get())).status == 200


async def test_what_is_remembered_of_targets_is_bounded(tmp_path: Path) -> None:
    """However many paths clients ask for, and however long they are."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        for number in range(5_000):
            client.send(get(f"/{number}"))
            assert (await client.read()).status == 200
        known = run.gateway._proxy._gate._known
        assert 0 < len(known) <= 4096
        before = len(known)
        assert (await client.get("/" + "x" * 10_000)).status == 200
        assert len(known) == before


async def test_stopping_lets_requests_end(tmp_path: Path) -> None:
    """Idle connections close immediately, new ones are refused, and requests in flight finish."""

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            if b"/slow" in request:
                arrived.set()
                await go_on.wait()
            await peer.send(OK)

    arrived, go_on = asyncio.Event(), asyncio.Event()
    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        idle, busy = await run.client(), await run.client()
        assert (await idle.get()).status == 200
        assert is_ready(run)
        (address,) = run.gateway.addresses
        busy.send(get("/slow"))
        await arrived.wait()
        stopping = asyncio.create_task(run.gateway.stop(5))
        assert await idle.at_end() == b""
        assert not is_ready(run)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(address.host, address.port)
        assert not stopping.done()
        go_on.set()
        answer = await busy.read()
        assert (answer.status, answer.get(b"Connection")) == (200, b"close")
        assert await busy.at_end() == b""
        await stopping


async def test_stopping_does_not_wait_for_ever(tmp_path: Path) -> None:
    """After the time it was given, connections break off; no answer looks whole."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await peer.at_end()

    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, complaint="cut off") as run,
    ):
        client = await run.client()
        client.send(get())
        await client.reader.readuntil(b"half")
        await run.gateway.stop(0.05)
        assert await client.is_closed()


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """Starting fails with the address and its field, and leaves nothing open."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        (address,) = run.gateway.addresses
        other = make_gateway(
            {
                "listen": ["127.0.0.1:0", f"{address.host}:{address.port}"],
                "admin": "off",
                "log": {"output": str(tmp_path / "other"), "access": False},
                "routes": {"/**": {"upstream": upstream.url}},
            }
        )
        with pytest.raises(StartError, match="in use"):
            await other.start()
        assert not other.addresses
        assert (await run.ask(get())).status == 200


async def test_several_addresses(tmp_path: Path) -> None:
    """Each is listened on; a port of 0 becomes one that is free."""
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, listen=["127.0.0.1:0", "127.0.0.1:0"]) as run,
    ):
        ports = {address.port for address in run.gateway.addresses}
        assert len(ports) == 2
        assert 0 not in ports
        for port in ports:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", "Connection: close"))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()
            await writer.wait_closed()
