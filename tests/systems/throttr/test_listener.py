"""Throttr listeners with records in memory: their sockets, their bounds and their ends."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Sequence
from functools import partial
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.config.checking.check import check_text
from tests.breaking import abort
from tests.servers import until
from tests.systems.throttr.golden import GOLDEN, read
from tests.systems.throttr.models import Model2, Model5, cuts, requests2, requests5, times
from tests.systems.throttr.running import INSERT, TAKE, Run, connected, running
from tests.systems.throttr.wire import START

LONG: Final = bytes.fromhex("05 06 0100 01 ff7f 6c") + b"v" * 32767
"""A buffer of 32 KiB under "l", and"""
GET: Final = b"\6\1l"
"""three bytes that ask for it."""
GOT: Final = bytes.fromhex("01 06 0000 ff7f") + b"v" * 32767


@pytest.fixture(scope="module", autouse=True)
def _read_files_first() -> None:
    """A gateway reads its files before its loop begins; a test that has begun must not."""
    check_text("listeners: [{ throttr: v2 }]")


def settings_of(size: int) -> str:
    """The listener of a golden table: version 2 for a size of 0."""
    return f"{{ version: v5, size: {size} }}" if size else "v2"


@pytest.mark.parametrize("name", GOLDEN)
async def test_each_message_has_its_answer_over_a_socket(name: str) -> None:
    """One after the other, all at once, and byte by byte: the same answers, byte by byte."""
    size, exchanges = GOLDEN[name]
    said, answered = read(exchanges)
    clock = ManualClock(START)
    for way in ("apart", "together", "bytes"):
        async with running(settings_of(size), clock=clock) as run, connected(run.port) as client:
            if way == "apart":
                for message, wanted in zip(said, answered, strict=True):
                    assert await client.ask(message, len(wanted)) == wanted
            elif way == "together":
                wanted = b"".join(answered)
                assert await client.ask(b"".join(said), len(wanted)) == wanted
            else:
                for message, wanted in zip(said, answered, strict=True):
                    for byte in message:
                        await client.say(bytes([byte]))
                        await asyncio.sleep(0)
                    assert await client.hear(len(wanted)) == wanted
            client.writer.write_eof()
            assert await client.rest() == b""


async def _follow(
    run: Run, clock: ManualClock, program: Sequence[tuple[int, list[bytes]]], model: Model2 | Model5
) -> None:
    async with connected(run.port) as client:
        for later, pieces in program:
            clock.now_us += later
            wanted, left = model.read(b"".join(pieces), clock.now_us)
            assert not left
            for piece in pieces:
                await client.say(piece)
                await asyncio.sleep(0)
            assert await client.hear(len(wanted)) == wanted


@st.composite
def programs(draw: st.DrawFn, requests: st.SearchStrategy[bytes]) -> list[tuple[int, list[bytes]]]:
    """Some requests in pieces, again and again, with time between."""
    rounds = []
    for _ in range(draw(st.integers(1, 4))):
        said = b"".join(draw(st.lists(requests, min_size=1, max_size=8)))
        rounds.append((draw(times()), draw(cuts(said))))
    return rounds


@pytest.mark.parametrize("size", [0, 8, 64])
def test_random_programs_over_a_socket_are_answered_as_the_model_says(size: int) -> None:
    """Pipelined, in pieces, and at any time."""
    clock = ManualClock(START)

    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
    @given(programs(requests5(size) if size else requests2()))
    def check(program: list[tuple[int, list[bytes]]]) -> None:
        model: Model2 | Model5 = Model5(size) if size else Model2()

        async def once() -> None:
            async with running(settings_of(size), clock=clock) as run:
                await _follow(run, clock, program, model)

        runner.run(once())

    with asyncio.Runner() as runner:
        check()


async def test_many_requests_at_once_are_answered_in_order() -> None:
    """More than one turn of the loop has time for, over some connections at a time."""
    async with running("v5") as run:

        async def one(number: int) -> None:
            key = b"%04d" % number
            insert = bytes.fromhex("01 ffff 06 0100 04") + key
            take = bytes.fromhex("03 00 02 0100 04") + key
            ask = b"\2\4" + key
            async with connected(run.port) as client:
                told = await client.ask(insert + (take + ask) * 5000, 1 + 5000 * 7)
            quotas = [int.from_bytes(told[at + 2 : at + 4], "little") for at in range(1, 35000, 7)]
            assert quotas == list(range(65534, 65534 - 5000, -1))

        await asyncio.gather(*(one(number) for number in range(4)))
        assert run.answers() == {
            ("insert", "yes"): 4,
            ("update", "yes"): 20_000,
            ("query", "yes"): 20_000,
        }


async def test_answers_that_nobody_takes_do_not_fill_the_memory() -> None:
    """A client that asks for much and reads nothing is not read from; then it gets it all."""
    async with running("v5") as run, connected(run.port) as client:
        assert await client.ask(LONG, 1) == b"\1"
        client.pause()
        client.writer.write(GET * 3000)
        (connection,) = run.frontend.connections
        await until(lambda: connection in run.frontend.watched)
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_size() < 2_000_000
        client.resume()
        for _ in range(3000):
            assert await client.hear(len(GOT)) == GOT


async def test_a_client_that_never_takes_its_answers_is_cut_off() -> None:
    """After the time that a message has."""
    settings = "{ version: v5, message_timeout: 100ms }"
    async with running(settings) as run, connected(run.port) as client:
        assert await client.ask(LONG, 1) == b"\1"
        client.pause()
        client.writer.write(GET * 3000)
        # All that it says is whole and its end of the connection is open: nothing else ends it.
        await until(lambda: not run.frontend.connections)


@pytest.mark.parametrize(("version", "start"), [("v2", b"\1\5"), ("v5", b"\3\0\2")])
async def test_a_message_that_does_not_end_is_answered_and_ends_the_connection(
    version: str, start: bytes
) -> None:
    """The beginning of a request may be followed by its end for a while."""
    settings = f"{{ version: {version}, message_timeout: 50ms }}"
    async with running(settings) as run, connected(run.port) as client:
        assert await client.ask(b"\4\1\0k" if version == "v2" else b"\4\1k", 1) == b"\0"
        await client.say(start)
        assert await client.rest() == b"\0"
        assert run.metrics.malformed == {"timeout": 1}


async def test_idle_connections_stay_open() -> None:
    """However long nothing is asked, as clients keep them."""
    async with (
        running("{ version: v5, message_timeout: 20ms }") as run,
        connected(run.port) as idle,
    ):
        assert await idle.ask(INSERT, 1) == b"\1"
        async with connected(run.port) as broken:
            await broken.say(b"\3")
            assert await broken.rest() == b"\0"
        assert await idle.ask(TAKE, 1) == b"\1"


async def test_clients_that_are_gone_without_a_word_are_looked_for() -> None:
    """A thousand of them would be all that there may be, for good."""
    async with running("v5") as run, connected(run.port) as client:
        assert await client.ask(INSERT, 1) == b"\1"
        accepted = run.accepted()
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


async def test_version_5_answers_what_is_no_request_and_closes() -> None:
    """After the answers to all that came before it."""
    async with running("v5") as run, connected(run.port) as client:
        await client.say(INSERT + TAKE + b"\x07" + TAKE * 1000)
        assert await client.rest() == b"\1\1\0"
        assert run.metrics.malformed == {"unknown": 1}


def _has_counted(run: Run, number: int) -> bool:
    return sum(run.metrics.malformed.values()) >= number


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        # The INSERT of a client that has 32 bits, and that of one of version 2.
        ("v5", "01 02000000 04 3c000000 01 6b", "Throttr v5 with values of 16 bits (timeout)"),
        ("v5", "01 0300" + "00" * 20, "Throttr v5 with values of 16 bits (unknown)"),
        ("v2", "07", "Throttr v2 (unknown)"),
    ],
)
async def test_clients_of_another_version_or_size_are_told_of_once(
    version: str, said: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else shows a misconfigured client; a flood of such requests gives one line."""
    async with running(f"{{ version: {version}, message_timeout: 20ms }}") as run:
        for number in (1, 2):
            async with connected(run.port) as client:
                await client.say(bytes.fromhex(said))
                await until(partial(_has_counted, run, number))
    (record,) = [one for one in caplog.records if "malformed request" in one.getMessage()]
    assert told in record.getMessage()


async def test_version_5_refuses_what_is_too_long_before_it_has_come() -> None:
    """The connection ends with it."""
    settings = "{ version: v5, size: 32, max_message: 2KiB }"
    async with running(settings) as run, connected(run.port) as client:
        await client.say(bytes.fromhex("05 04 3c000000 01 ffffffff 6b"))
        assert await client.rest() == b"\0"
        assert run.metrics.malformed == {"too_long": 1}


async def test_version_2_answers_what_is_no_request_and_goes_on() -> None:
    """The connection stays open."""
    async with running("v2") as run, connected(run.port) as client:
        assert await client.ask(b"\0\0\0\0\0", 1) == b"\0"
        assert len(await client.ask(b"\2\1\1cr", 18)) == 18
        assert run.metrics.malformed == {"unknown": 1}


async def test_a_client_that_says_no_more_hears_all_its_answers() -> None:
    """And 00 for what it did not finish."""
    async with running("v5") as run:
        async with connected(run.port) as client:
            await client.say(INSERT + TAKE * 3000)
            client.writer.write_eof()
            assert await client.rest() == b"\1" * 1001 + b"\0" * 2000
        async with connected(run.port) as client:
            await client.say(TAKE + b"\3")
            client.writer.write_eof()
            assert await client.rest() == b"\0\0"
        assert run.metrics.malformed == {"incomplete": 1}


async def test_no_more_clients_are_taken_than_there_may_be() -> None:
    """And one that leaves makes room."""
    async with running("{ version: v5, max_connections: 2 }") as run:
        async with connected(run.port) as first, connected(run.port) as second:
            assert await first.ask(INSERT, 1) == b"\1"
            assert await second.ask(TAKE, 1) == b"\1"
            async with connected(run.port) as third:
                with pytest.raises((ConnectionError, AssertionError)):
                    assert await third.ask(TAKE, 1)
        await until(lambda: not run.frontend.connections)
        async with connected(run.port) as fourth:
            assert await fourth.ask(TAKE, 1) == b"\1"
        assert run.metrics.malformed == {"too_many_connections": 1}
        assert run.metrics.connections == 4


async def test_records_are_bounded_and_counted() -> None:
    """What is kept is shown; what has no room is refused."""
    async with running("{ version: v5, max_records: 3 }") as run, connected(run.port) as client:
        inserts = b"".join(bytes.fromhex("01 0100 06 0100 01") + b"%d" % n for n in range(5))
        assert await client.ask(inserts, 5) == b"\1\1\1\0\0"
        assert run.answers() == {("insert", "yes"): 3, ("insert", "no"): 2}
        assert run.metrics.records == 3
        assert run.metrics.record_bytes
        assert await client.ask(b"\4\1" + b"0" + inserts[-8:], 2) == b"\1\1"


async def test_what_has_expired_is_forgotten_although_nobody_asks() -> None:
    """By the listener itself."""
    clock = ManualClock(START)
    async with running("v5", clock=clock) as run, connected(run.port) as client:
        assert await client.ask(bytes.fromhex("01 0100 04 0100 01 6b"), 1) == b"\1"
        clock.now_us += 10**9
        run.metrics.refresh()
        assert run.metrics.records == 1

        def is_gone() -> bool:
            run.metrics.refresh()
            return run.metrics.records == 0

        await until(is_gone)


async def test_what_was_read_is_answered_when_the_gateway_ends() -> None:
    """Then no client can connect, and connected ones see the end."""
    async with running("v5") as run, connected(run.port) as client, connected(run.port) as idle:
        assert await client.ask(INSERT, 1) == b"\1"
        assert await idle.ask(TAKE, 1) == b"\1"
        client.writer.write(b"\2\1k" * 50_000)
        await until(lambda: ("query", "yes") in run.answers())
        await run.frontend.drain(5)
        told = await client.rest()
        assert len(told) == 6 * run.answers()["query", "yes"]
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", run.port)


async def test_what_was_done_is_told_although_more_was_said() -> None:
    """A client far behind in reading and far ahead in requests: all answers arrive."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        async with running("v5") as run:
            async with connected(run.port) as first:
                assert await first.ask(INSERT, 1) == b"\1"
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", run.port))
            saying = loop.create_task(loop.sock_sendall(client, b"\2\1k" * 4_000_000))
            connections = run.frontend.connections
            await until(lambda: any(each._is_held for each in connections))
            draining = loop.create_task(run.frontend.drain(20))
            heard = 0
            async with asyncio.timeout(20):
                while told := await loop.sock_recv(client, 1 << 14):
                    heard += len(told)
            assert heard == 6 * run.answers()["query", "yes"]
            await draining
            saying.cancel()
            await asyncio.gather(saying, return_exceptions=True)


async def test_answers_are_sent_at_once() -> None:
    """Small ones do not wait for larger ones."""
    async with running("v5") as run, connected(run.port) as client:
        assert await client.ask(INSERT, 1) == b"\1"
        assert run.accepted().getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_address_that_is_taken_is_an_error_at_the_start() -> None:
    """And nothing is left behind."""
    async with running("v5") as run:
        with pytest.raises(OSError, match="Address already in use"):
            await running("v5", port=run.port).__aenter__()


@pytest.mark.parametrize("version", ["v2", "v5"])
async def test_whatever_is_sent_nobody_else_is_disturbed(version: str) -> None:
    """Random bytes in random pieces, connections that end at any moment."""
    dice = random.Random(7)
    async with running(f"{{ version: {version}, message_timeout: 50ms }}") as run:

        async def disturb() -> None:
            for _ in range(40):
                async with connected(run.port) as client:
                    for _ in range(dice.randrange(1, 4)):
                        first = bytes([dice.randrange(8)])
                        client.writer.write(first + dice.randbytes(dice.randrange(200)))
                        await asyncio.sleep(0)
                    if dice.random() < 0.5:
                        abort(client.writer)

        await asyncio.gather(*(disturb() for _ in range(5)))
        async with connected(run.port) as client:
            if version == "v2":
                assert len(await client.ask(b"\2\1\1cr", 18)) == 18
            else:
                assert await client.ask(INSERT, 1) in {b"\0", b"\1"}
        await until(lambda: not run.frontend.connections)
        assert not run.frontend.watched
