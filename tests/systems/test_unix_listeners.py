"""Listeners for other systems' clients on sockets of this machine."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import grpc.aio
import pytest

from gateway.base.errors import StartError
from gateway.config.checking.check import check_text
from gateway.config.values.address import UnixAddress
from gateway.net.binding import bound_file
from tests.envoy_rls import call
from tests.proxy.wire import make_gateway
from tests.ratio import OK, PATH, read_files_first, request
from tests.systems.throttr.running import INSERT, TAKE

KINDS: Final = {
    "ratio": "ratio: 100/m",
    "envoy_rls": 'envoy_rls: { domains: { shop: [{ match: { user: "*" }, limit: 10/s }] } }',
    "throttr": "throttr: v5",
}
EACH: Final = pytest.mark.parametrize("kind", KINDS)


@asynccontextmanager
async def _running(kind: str, path: Path, more: str = "") -> AsyncIterator[None]:
    text = (
        f"listeners: [{{ {KINDS[kind]}, bind: 'unix:{path}'{more} }}]\n"
        f"admin: off\nlog: {{ access: off, output: {path.parents[1] / 'log'} }}\n"
    )
    config = await asyncio.to_thread(lambda: check_text(text).config)
    await asyncio.to_thread(read_files_first)
    gateway = make_gateway(config)
    await gateway.start()
    try:
        yield
    finally:
        await gateway.stop()


async def _is_answered(kind: str, path: Path) -> bool:
    if kind == "throttr":
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(INSERT + TAKE)
        said = await reader.readexactly(2)
        writer.close()
        return said == b"\x01\x01"
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        if kind == "envoy_rls":
            return (await call(channel, {"user": "ann"})).statuses[0].remaining == 9
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        return await method(request()) == OK


@EACH
async def test_clients_are_answered_and_the_file_goes_with_the_gateway(
    kind: str, tmp_path: Path
) -> None:
    """It has the configured mode from the first moment."""
    path = tmp_path / "s.sock"
    async with _running(kind, path, ", mode: 0660"):
        assert stat.S_IMODE((await asyncio.to_thread(path.stat)).st_mode) == 0o660
        assert await _is_answered(kind, path)
    assert not await asyncio.to_thread(path.exists)


@EACH
async def test_a_file_that_nobody_listens_on_any_more_is_replaced(
    kind: str, tmp_path: Path
) -> None:
    """As a gateway leaves it that was killed."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    async with _running(kind, path):
        assert await _is_answered(kind, path)


@EACH
async def test_a_file_that_another_has_put_in_its_place_stays(kind: str, tmp_path: Path) -> None:
    """As when a folder was emptied, and a newer gateway started there: that one continues."""
    path = tmp_path / "s.sock"
    async with _running("ratio", path):
        async with _running(kind, path.with_name("older.sock")):
            await asyncio.to_thread(path.replace, path.with_name("older.sock"))
        assert await _is_answered("ratio", path.with_name("older.sock"))
    assert [one.name for one in await asyncio.to_thread(lambda: list(tmp_path.iterdir()))] == [
        "older.sock"
    ]


@pytest.mark.parametrize("kind", ["ratio", "throttr"])
@pytest.mark.parametrize("length", [107 - 1, 107])
async def test_the_longest_paths_will_do(kind: str, length: int, tmp_path: Path) -> None:
    """With as many bytes as the system permits, and with temporary files next to them."""
    path = tmp_path / "s".ljust(length - len(bytes(tmp_path)) - 1, "s")
    assert len(bytes(path)) == length
    async with _running(kind, path):
        assert await _is_answered(kind, path)
    assert not list(await asyncio.to_thread(lambda: list(tmp_path.iterdir())))


@EACH
async def test_one_that_another_listens_on_is_an_error(kind: str, tmp_path: Path) -> None:
    """And the other process continues."""
    path = tmp_path / "s.sock"
    async with _running("ratio", path):
        with pytest.raises(StartError, match="is already in use") as error:
            async with _running(kind, path):
                pass
        assert error.value.path == "listeners[0].bind"
        assert await _is_answered("ratio", path)


@EACH
async def test_any_name_will_do(kind: str, tmp_path: Path) -> None:
    """Also one that is another when it is taken for a part of a URL."""
    path = tmp_path / "a%41 ?#.sock"
    async with _running(kind, path):
        assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == [path]
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


@EACH
@pytest.mark.parametrize("type_", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
async def test_one_that_takes_no_connection_now_is_in_use(
    kind: str, type_: socket.SocketKind, tmp_path: Path
) -> None:
    """Its queue is full, or it is for something else; its file stays."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX, type_) as other, socket.socket(socket.AF_UNIX) as waiting:
        other.bind(str(path))
        if type_ == socket.SOCK_STREAM:
            other.listen(0)
            waiting.connect(str(path))
        before = await asyncio.to_thread(path.stat)
        with pytest.raises(StartError, match="is already in use"):
            async with _running(kind, path):
                pass
        assert (await asyncio.to_thread(path.stat)).st_ino == before.st_ino


async def test_one_of_a_gateway_that_has_only_just_begun_is_in_use(tmp_path: Path) -> None:
    """It may still wait for its store, and another start must not treat its file as unused."""
    address = UnixAddress(str(tmp_path / "s.sock"))
    one, _ = await asyncio.to_thread(bound_file, address, None)
    with one, pytest.raises(StartError, match="is already in use"):
        async with _running("throttr", Path(address.path)):
            pass


@EACH
async def test_a_link_to_what_is_not_there_stays(kind: str, tmp_path: Path) -> None:
    """It is no socket, nor in use."""
    path = tmp_path / "s.sock"
    await asyncio.to_thread(path.symlink_to, tmp_path / "none")
    with pytest.raises(StartError, match="a dangling link"):
        async with _running(kind, path):
            pass
    assert await asyncio.to_thread(path.is_symlink)


@EACH
async def test_a_folder_that_is_not_there_is_an_error(kind: str, tmp_path: Path) -> None:
    """With the folder's name."""
    path = tmp_path / "none" / "s.sock"
    with pytest.raises(StartError, match=f"the folder {path.parent} does not exist"):
        async with _running(kind, path):
            pass


@EACH
async def test_a_file_that_is_no_socket_stays(kind: str, tmp_path: Path) -> None:
    """Whatever it is, it belongs to another program."""
    path = tmp_path / "s.sock"
    await asyncio.to_thread(path.write_text, "mine")
    with pytest.raises(StartError, match="not a socket"):
        async with _running(kind, path):
            pass
    assert await asyncio.to_thread(path.read_text) == "mine"
