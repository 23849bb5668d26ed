"""Requests through the front door, and which target of several they reach."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.base.clock import ManualClock
from gateway.observe.metrics.exposition import render
from tests.proxy.wire import Peer, Running, ScriptedUpstream, get, running
from tests.servers import until

EJECT: Final = {"failures": 2, "duration": "10s"}
BREAKER: Final = {"min_requests": 4, "window": "10s", "open": "5s", "trials": 2}
LEFT_OUT: Final = "is left out"


class Fleet:
    """Targets that answer with their number, and do as they are told.

    Attributes:
        status: what each answers; 0 closes the connection instead.
        may_answer: each waits for it.
        seen: how many requests each has had.
    """

    def __init__(self, count: int) -> None:
        self.status = [200] * count
        self.may_answer = [asyncio.Event() for _ in range(count)]
        for event in self.may_answer:
            event.set()
        self.seen = Counter[int]()
        self.servers = [ScriptedUpstream(self._script(number)) for number in range(count)]

    @property
    def urls(self) -> list[str]:
        """Where they listen."""
        return [server.url for server in self.servers]

    def _script(self, number: int) -> Any:
        async def script(peer: Peer) -> None:
            while await peer.request():
                self.seen[number] += 1
                await self.may_answer[number].wait()
                if not self.status[number]:
                    peer.close()
                    return
                head = f"HTTP/1.1 {self.status[number]} Said\r\nContent-Length: 1\r\n\r\n{number}"
                await peer.send(head.encode())

        return script


@asynccontextmanager
async def fleet_of(
    folder: Path, count: int, complaint: str = LEFT_OUT, **settings: Any
) -> AsyncIterator[tuple[Fleet, Running, ManualClock]]:
    """So many targets behind a gateway, which judges them by a clock that is moved by hand."""
    fleet = Fleet(count)
    clock = ManualClock(1_000_000)
    async with AsyncExitStack() as stack:
        for server in fleet.servers:
            await stack.enter_async_context(server)
        targets = [
            {"url": url, "weight": weight}
            for url, weight in zip(fleet.urls, settings.pop("weights", [1] * count), strict=True)
        ]
        u = {"targets": targets, **settings}
        run = await stack.enter_async_context(running(folder, "-", complaint, u=u))
        run.upstream().balancer._clock = clock
        yield fleet, run, clock


async def whom(run: Running, count: int, *fields: str) -> list[int]:
    """Who answers so many requests, one after the other; -1 for the gateway itself."""
    client = await run.client()
    request = "".join(f"{field}\r\n" for field in ("GET / HTTP/1.1", "Host: a", *fields, ""))
    found = []
    for _ in range(count):
        answer = await client.ask(request.encode())
        found.append(int(answer.body) if len(answer.body) == 1 else -1)
    return found


async def test_targets_take_turns_even_over_new_connections(tmp_path: Path) -> None:
    """A request that has to connect first takes one turn, not two."""
    async with fleet_of(tmp_path, 2) as (_, run, _clock):
        assert await whom(run, 6) == [0, 1, 0, 1, 0, 1]
        both = [await run.client() for _ in range(8)]
        answers = await asyncio.gather(*(client.get() for client in both))
        assert Counter(answer.body for answer in answers) == {b"0": 4, b"1": 4}


async def test_turns_are_by_weight_and_interleaved(tmp_path: Path) -> None:
    """As nginx has it."""
    async with fleet_of(tmp_path, 3, weights=[5, 1, 1]) as (_, run, _clock):
        assert await whom(run, 14) == [0, 0, 1, 0, 2, 0, 0] * 2
        counted = run.gateway.metrics.upstream("u").targets
        assert [target.requests for target in counted.values()] == [10, 2, 2]


async def test_least_requests_avoids_who_is_slow(tmp_path: Path) -> None:
    """While one request hangs at a target, the others go elsewhere."""
    async with fleet_of(tmp_path, 2, balance="least_requests") as (fleet, run, _clock):
        fleet.may_answer[0].clear()
        slow = await run.client()
        slow.send(get())
        await until(lambda: fleet.seen[0] == 1)
        assert await whom(run, 5) == [1] * 5
        fleet.may_answer[0].set()
        assert (await slow.read()).body == b"0"
        assert Counter(await whom(run, 4)) == {0: 2, 1: 2}


async def test_random_two_avoids_who_is_slow(tmp_path: Path) -> None:
    """Of two targets, both are drawn each time."""
    async with fleet_of(tmp_path, 2, balance="random_two") as (fleet, run, _clock):
        fleet.may_answer[1].clear()
        slow = [await run.client() for _ in range(2)]
        for client in slow:
            client.send(get())
        await until(lambda: sum(fleet.seen.values()) == 2)
        assert await whom(run, 5) == [0] * 5
        fleet.may_answer[1].set()
        assert {(await client.read()).status for client in slow} == {200}


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("header:x-user", [f"X-User: {number}" for number in range(40)]),
        ("cookie:session", [f"Cookie: session={number}" for number in range(40)]),
    ],
)
async def test_a_hash_keeps_a_key_at_its_target(
    tmp_path: Path, key: str, fields: list[str]
) -> None:
    """Each value has one target; several have several; and when one goes, its keys alone move."""
    settings: dict[str, Any] = {"balance": {"hash": key}, "eject": EJECT}
    async with fleet_of(tmp_path, 3, **settings) as (fleet, run, clock):
        homes = {}
        for field in fields:
            (homes[field],) = {*await whom(run, 2, field)}
        # That one of them has none of so many keys is one chance in a million.
        assert {*homes.values()} == {0, 1, 2}
        assert await whom(run, 3) == [0, 1, 2], "without a key they take turns"

        fleet.status[1] = 503
        mover = next(field for field, home in homes.items() if home == 1)
        assert await whom(run, 2, mover) == [1, 1]
        for field, home in homes.items():
            (found,) = {*await whom(run, 2, field)}
            assert (found == home) == (home != 1)
        fleet.status[1] = 200
        clock.advance(seconds=10)
        assert [(await whom(run, 1, field))[0] for field in fields] == [*homes.values()]


@pytest.mark.parametrize("status", [502, 503, 504, 0])
async def test_failures_in_a_row_eject_a_target(tmp_path: Path, status: int) -> None:
    """From then on it has no request, until its time is over; one more failure, and again."""
    async with fleet_of(tmp_path, 2, eject=EJECT) as (fleet, run, clock):
        fleet.status[0] = status
        assert (await whom(run, 4))[1::2] == [1, 1]
        assert fleet.seen == {0: 2, 1: 2}
        assert await whom(run, 9) == [1] * 9
        counted = run.gateway.metrics.upstream("u").targets
        ejected, other = counted.values()
        assert (ejected.is_ejected, ejected.ejections, other.ejections) == (True, 1, 0)

        clock.advance(seconds=10)
        await whom(run, 6)
        assert fleet.seen[0] == 3
        fleet.status[0] = 200
        clock.advance(seconds=19)
        assert {*await whom(run, 4)} == {1}
        clock.advance(seconds=1)
        assert Counter(await whom(run, 4)) == {0: 2, 1: 2}
        assert (ejected.is_ejected, ejected.ejections) == (False, 2)


async def test_a_scrape_says_what_is_so_now(tmp_path: Path) -> None:
    """An expired ejection is not shown, even if there was no request since."""
    async with fleet_of(tmp_path, 2, eject=EJECT) as (fleet, run, clock):
        fleet.status[0] = 503
        await whom(run, 4)
        shown = []
        for seconds in (0, 10):
            clock.advance(seconds=seconds)
            text = render(run.gateway.metrics).decode()
            shown.append(re.findall(r"^sluice_target_ejected\{.*\} (.*)$", text, re.MULTILINE))
        assert shown == [["1.0", "0.0"], ["0.0", "0.0"]]


async def test_a_target_that_is_not_there_is_ejected(tmp_path: Path) -> None:
    """Connections that are refused are failures, too; half of the targets at most are ejected."""
    async with fleet_of(tmp_path, 4, eject={**EJECT, "max_share": "50%"}) as (fleet, run, _clock):
        for server in fleet.servers[:3]:
            assert server._server is not None
            server._server.close()
        answers = Counter(await whom(run, 20))
        counted = run.gateway.metrics.upstream("u").targets.values()
        assert [target.is_ejected for target in counted] == [True, True, False, False]
        assert answers == {3: 8, -1: 12}
        assert run.gateway.metrics.upstream("u").errors == {"connect": answers[-1]}


async def test_other_answers_do_not_eject(tmp_path: Path) -> None:
    """404 and 500 are the application's; the configuration defines which statuses count."""
    async with fleet_of(tmp_path, 2, eject=EJECT) as (fleet, run, _clock):
        for status in (404, 500):
            fleet.status[0] = status
            assert Counter(await whom(run, 8)) == {0: 4, 1: 4}
    async with fleet_of(tmp_path, 2, eject={**EJECT, "statuses": "5xx"}) as (fleet, run, _clock):
        fleet.status[0] = 404
        assert Counter(await whom(run, 8)) == {0: 4, 1: 4}
        fleet.status[0] = 500
        assert Counter(await whom(run, 8)) == {0: 2, 1: 6}


async def test_ejection_can_be_switched_off(tmp_path: Path) -> None:
    """Then failures change nothing."""
    async with fleet_of(tmp_path, 2, eject="off") as (fleet, run, _clock):
        fleet.status[0] = 503
        assert Counter(await whom(run, 40)) == {0: 20, 1: 20}


async def test_a_client_that_leaves_is_no_failure(tmp_path: Path) -> None:
    """The target did nothing wrong."""
    async with fleet_of(tmp_path, 2, eject=EJECT) as (fleet, run, _clock):
        fleet.may_answer[0].clear()
        for number in range(1, 5):
            client = await run.client()
            client.send(get())
            await until(lambda number=number: fleet.seen[0] == number)  # type: ignore[misc]
            client.close()
            await until(lambda: not run.upstream().pools[0].in_flight)
            assert await whom(run, 1) == [1]
        counted = run.gateway.metrics.upstream("u").targets.values()
        assert [target.is_ejected for target in counted] == [False, False]


async def test_a_client_that_is_slow_is_no_failure(tmp_path: Path) -> None:
    """Time that a client uses for its body does not count against the target; idle time does."""
    settings: dict[str, Any] = {"eject": EJECT, "timeouts": {"total": "100ms"}}
    async with fleet_of(tmp_path, 2, **settings) as (fleet, run, _clock):
        slow = [await run.client() for _ in range(6)]
        for client in slow:
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        assert {(await client.read()).status for client in slow} == {504}
        targets = run.gateway.metrics.upstream("u").targets.values()
        assert [target.is_ejected for target in targets] == [False, False]

        for event in fleet.may_answer:
            event.clear()
        assert await whom(run, 3) == [-1] * 3
        assert sum(target.is_ejected for target in targets) == 1
        for event in fleet.may_answer:
            event.set()


async def test_a_target_that_comes_back_starts_slowly(tmp_path: Path) -> None:
    """A tenth of its weight at first, half in the middle, then all of it."""
    settings: dict[str, Any] = {"eject": EJECT, "slow_start": "100s"}
    async with fleet_of(tmp_path, 2, **settings) as (fleet, run, clock):
        fleet.status[0] = 503
        await whom(run, 4)
        fleet.status[0] = 200
        clock.advance(seconds=10)
        shares = []
        for seconds in (50, 50, 0):
            shares.append(Counter(await whom(run, 110))[0])
            clock.advance(seconds=seconds)
        # 1 of 11, 1 of 3 and 1 of 2.
        assert shares[0] == 10
        assert 36 <= shares[1] <= 38
        assert 54 <= shares[2] <= 56


async def test_a_breaker_opens_tries_and_closes(tmp_path: Path) -> None:
    """503 with Retry-After at once while it is open; then so many trials decide."""
    async with fleet_of(tmp_path, 1, "too many requests fail", breaker=BREAKER) as parts:
        fleet, run, clock = parts
        fleet.status[0] = 503
        assert await whom(run, 4) == [0] * 4
        assert fleet.seen[0] == 4
        clock.advance(seconds=2)
        answer = await run.ask(get())
        assert (answer.status, answer.get(b"Retry-After")) == (503, b"3")
        document = json.loads(answer.body)
        assert (document["error"], document["retry-after"]) == ("breaker_open", 3)
        assert await whom(run, 5) == [-1] * 5
        assert fleet.seen[0] == 4, "nothing was sent"
        metrics = run.gateway.metrics.upstream("u")
        assert (metrics.breaker, metrics.errors["breaker_open"]) == ("open", 6)

        clock.advance(seconds=3)
        assert await whom(run, 4) == [0, -1, -1, -1], "one trial failed"
        fleet.status[0] = 200
        clock.advance(seconds=5)
        assert await whom(run, 1) == [0]
        assert metrics.breaker == "half_open"
        assert await whom(run, 9) == [0] * 9
        assert metrics.breaker == "closed"


async def test_only_so_many_trials_pass_at_a_time(tmp_path: Path) -> None:
    """And one whose client leaves makes room for another."""
    async with fleet_of(tmp_path, 1, "too many requests fail", breaker=BREAKER) as parts:
        fleet, run, clock = parts
        fleet.status[0] = 0
        await whom(run, 4)
        fleet.status[0] = 200
        clock.advance(seconds=5)
        fleet.may_answer[0].clear()
        before = fleet.seen[0]
        trials = [await run.client() for _ in range(2)]
        for trial in trials:
            trial.send(get())
        await until(lambda: fleet.seen[0] == before + 2)
        answer = await run.ask(get())
        assert (answer.status, answer.get(b"Retry-After")) == (503, b"1")

        trials[0].close()
        await until(lambda: run.upstream().pools[0].in_flight == 1)
        third = await run.client()
        third.send(get())
        await until(lambda: fleet.seen[0] == before + 3)
        fleet.may_answer[0].set()
        assert [(await one.read()).status for one in (trials[1], third)] == [200, 200]
        assert run.gateway.metrics.upstream("u").breaker == "closed"


async def test_who_has_no_choice_pays_nothing(tmp_path: Path) -> None:
    """A single target without checks and breaker is never chosen or judged."""
    fleet = Fleet(1)
    async with fleet.servers[0] as server, running(tmp_path, server) as run:
        upstream = run.upstream()
        assert upstream.only is upstream.pools[0]
        assert upstream.only.judge is None
        fleet.status[0] = 503
        assert await whom(run, 20) == [0] * 20
        assert run.gateway.metrics.upstream("u").targets == {}


async def test_a_retry_goes_where_it_was_not_yet(tmp_path: Path) -> None:
    """Targets that were tried are avoided as long as there are others."""
    async with fleet_of(tmp_path, 3) as (_, run, _clock):
        upstream = run.upstream()
        tried: list[Any] = []
        for _ in range(3):
            tried.append(upstream.pick(None, tried))
        assert {*tried} == {*upstream.pools}
        assert upstream.pick(None, tried) in upstream.pools
