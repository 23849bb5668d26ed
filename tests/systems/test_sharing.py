"""Addresses of listeners for other systems' clients: workers share them, gateways do not."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from gateway.base.errors import StartError
from gateway.config.checking.check import check_text
from gateway.net.binding import Sharing
from gateway.stores.shared.store import SharedStore
from gateway.wiring.worker_resources import WorkerResources
from gateway.workers.files import shared_files
from tests.processes import free_pair
from tests.proxy.wire import make_gateway
from tests.ratio import read_files_first

KINDS: Final = {
    "ratio": "ratio: 100/m",
    "throttr": "throttr: v5",
    "smockron": "smockron: { domains: { default: 1/s } }",
}
EVERYWHERE: Final = ("0.0.0.0", "[::]")  # noqa: S104 - nobody but this machine comes
FIRST: Final = Sharing(is_on=True)
ME: Final = Sharing(is_on=True, predecessors=frozenset([os.getpid()]))
ANOTHER: Final = Sharing(is_on=True, predecessors=frozenset([os.getppid()]))


@asynccontextmanager
async def _worker(kind: str, place: str, sharing: Sharing) -> AsyncIterator[None]:
    """The first of several workers of a gateway."""
    text = (
        f"listeners: [{{ {KINDS[kind]}, bind: '{place}' }}]\nadmin: off\nlog: {{ access: off }}\n"
    )
    config = await asyncio.to_thread(lambda: check_text(text).config)
    await asyncio.to_thread(read_files_first)
    with shared_files() as files:
        seat = WorkerResources(
            "worker-1", (), 2, SharedStore(2, 0), files.log_lock, sharing=sharing
        )
        worker = make_gateway(config, seat)
        await worker.start()
        try:
            yield
        finally:
            await worker.stop()


EACH: Final = pytest.mark.parametrize(
    ("kind", "is_file"),
    [(kind, False) for kind in KINDS] + [(kind, True) for kind in KINDS if kind != "smockron"],
)


def _place(folder: Path, *, is_file: bool) -> str:
    return f"unix:{folder}/s.sock" if is_file else f"127.0.0.1:{free_pair()}"


async def _is_taken(place: str) -> bool:
    """Whether somebody takes connections there."""
    try:
        if place.startswith("unix:"):
            _, writer = await asyncio.open_unix_connection(place.removeprefix("unix:"))
        else:
            host, _, port = place.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


@EACH
async def test_the_workers_of_another_gateway_do_not_share_it(
    kind: str, tmp_path: Path, *, is_file: bool
) -> None:
    """Though the system would let them."""
    place = _place(tmp_path, is_file=is_file)
    async with _worker(kind, place, FIRST):
        with pytest.raises(StartError, match="is already in use"):
            async with _worker(kind, place, FIRST):
                pass
        assert await _is_taken(place)


@pytest.mark.parametrize("asked", [*EVERYWHERE, ""])
@pytest.mark.parametrize("had", EVERYWHERE)
async def test_grpc_shares_no_address_of_another_family_either(had: str, asked: str) -> None:
    """It listens on all of both, whichever is asked for."""
    port = free_pair()
    async with _worker("throttr", f"{had}:{port}", FIRST):
        with pytest.raises(StartError, match="is already in use"):
            async with _worker("ratio", f"{asked}:{port}", FIRST):
                pass


@EACH
async def test_a_worker_has_it_together_with_the_one_that_it_replaces(
    kind: str, tmp_path: Path, *, is_file: bool
) -> None:
    """And when that ends, by itself."""
    place = _place(tmp_path, is_file=is_file)
    async with AsyncExitStack() as elder:
        await elder.enter_async_context(_worker(kind, place, FIRST))
        async with _worker(kind, place, ME):
            assert await _is_taken(place)
            await elder.aclose()
            assert await _is_taken(place)
    assert not await _is_taken(place)
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


@EACH
async def test_what_is_not_the_elders_is_in_use(
    kind: str, tmp_path: Path, *, is_file: bool
) -> None:
    """As when another process has taken it meanwhile."""
    place = _place(tmp_path, is_file=is_file)
    with socket.socket(socket.AF_UNIX if is_file else socket.AF_INET) as other:
        path = place.removeprefix("unix:")
        other.bind(path if is_file else ("127.0.0.1", int(place.rpartition(":")[2])))
        other.listen()
        with pytest.raises(StartError, match="is already in use"):
            async with _worker(kind, place, ANOTHER):
                pass
        assert await _is_taken(place)
