"""One road for a request: the same decisions with a task and without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.wire import OK, Peer, ScriptedUpstream, answering, get, post, running

BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
BAD_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"


def _name_of(work: Any) -> str:
    """The name of a coroutine; one that is compiled has it only in that of its class."""
    if hasattr(work, "__qualname__"):
        return str(work.__qualname__)
    method, _, owner = type(work).__name__.removesuffix("_gen").rpartition("_")
    return f"{owner}.{method}"


@contextmanager
def tasks_of_the_driver() -> Iterator[list[str]]:
    """The tasks that are started meanwhile to serve requests."""
    loop = asyncio.get_running_loop()
    names: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        name = _name_of(work)
        if name.startswith(("Driver.", "Upload.")):
            names.append(name)
        return asyncio.Task(work, loop=loop, **options)

    loop.set_task_factory(factory)
    try:
        yield names
    finally:
        loop.set_task_factory(None)


async def test_nothing_to_wait_for_is_no_task(tmp_path: Path) -> None:
    """Over an idle connection a request, its body and its response need none."""
    async with answering(OK) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        with tasks_of_the_driver() as names:
            assert (await client.get()).status == 200
            # There was no connection yet.
            assert names == ["Driver._run"]
            names.clear()
            assert (await client.get()).status == 200
            assert (await client.ask(post(b"body"))).status == 200
            assert names == []


async def test_another_attempt_over_an_idle_connection_is_no_task(tmp_path: Path) -> None:
    """A response that is tried again elsewhere starts none where a connection waits."""

    def saying(response: Callable[[], bytes]) -> ScriptedUpstream:
        async def script(peer: Peer) -> None:
            while await peer.request():
                await peer.send(response())

        return ScriptedUpstream(script)

    answers = {"a": OK, "b": OK}
    async with saying(lambda: answers["a"]) as a, saying(lambda: answers["b"]) as b:
        u = {"targets": [a.url, b.url], "retry": {"when": [503], "tries": 2}}
        async with running(tmp_path, "-", u=u) as run:
            client = await run.client()
            for _ in range(4):
                assert (await client.get()).status == 200
            answers["a"] = BUSY
            with tasks_of_the_driver() as names:
                for _ in range(4):
                    assert (await client.get()).status == 200
            assert names == []
            assert run.gateway.metrics.upstream("u").retries["status"] == 2


@pytest.mark.parametrize("is_reused", [False, True])
@pytest.mark.parametrize("is_judged", [False, True])
async def test_a_response_that_is_invalid_from_the_start_is_an_error(
    tmp_path: Path, *, is_reused: bool, is_judged: bool
) -> None:
    """Nothing of it is passed on, whether its connection is new or was used before."""
    answers = [OK, BAD_CHUNK] if is_reused else [BAD_CHUNK]
    breaker = {"breaker": {"failures": "100%"}} if is_judged else {}
    async with answering(*answers) as upstream, running(tmp_path, upstream, u=breaker) as run:
        client = await run.client()
        for _ in answers[1:]:
            assert (await client.get()).status == 200
        answer = await client.ask(get())
        assert (answer.status, answer.is_whole) == (502, True)
