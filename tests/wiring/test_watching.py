"""When files have changed and are complete, and what is done about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.checking.load import ConfigFiles
from gateway.wiring.watching import Settling, Watcher
from tests.configmap import ConfigMapVolume
from tests.servers import until

TEXT = "routes:\n  /a: { upstream: 'http://a:1' }\n"
OFTEN_US = 5_000


def due(known: bytes, seen: Iterable[bytes]) -> list[bytes]:
    """What a reload is asked for, of all that is seen at successive looks."""
    settling = Settling(known)
    return [one for one in seen if settling.is_due(one)]


@pytest.mark.parametrize(
    ("seen", "asked"),
    [
        (b"aaaa", b""),
        (b"ab", b""),
        (b"abb", b"b"),
        (b"abbbbb", b"b"),
        # Half-written, then whole.
        (b"ahbb", b"b"),
        (b"ahiklbb", b"b"),
        # Changed and changed back.
        (b"abaa", b""),
        (b"abbaa", b"ba"),
        (b"abbccbb", b"bcb"),
    ],
)
def test_what_is_seen_twice_in_a_row_is_complete(seen: bytes, asked: bytes) -> None:
    """And is reported once, valid or not, until it changes again."""
    assert b"".join(due(b"a", [bytes([one]) for one in seen])) == asked


@given(seen=st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=30))
def test_the_last_content_is_what_was_asked_for(seen: list[bytes]) -> None:
    """Whatever happens before, once nothing changes any more, the last content is in force."""
    asked = [b"a", *due(b"a", [*seen, b"end", b"end"])]
    assert asked[-1] == b"end"
    assert all(one != other for one, other in pairwise(asked))


def test_what_another_reload_has_read_is_not_asked_for_again() -> None:
    """After a signal, the next looks find what is in force."""
    settling = Settling(b"a")
    assert not settling.is_due(b"b")
    settling.known = b"b"
    assert not settling.is_due(b"b")
    assert not settling.is_due(b"b")


class _Reloads:
    """Counts reloads, with what there was to read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.texts: list[str] = []

    async def reload(self) -> None:
        self.texts.append(await asyncio.to_thread(self._text))

    def _text(self) -> str:
        paths = sorted(self._path.glob("*.yaml")) if self._path.is_dir() else [self._path]
        return "".join(path.read_text() for path in paths if path.exists())


@asynccontextmanager
async def watching(path: Path, interval_us: int | None = OFTEN_US) -> AsyncIterator[_Reloads]:
    """A watcher of files that were loaded before."""
    files = ConfigFiles(path, {})
    await asyncio.to_thread(files.load)
    reloads = _Reloads(path)
    watcher = Watcher(files.digest, reloads.reload, files.loaded)
    watcher.start(interval_us)
    try:
        yield reloads
    finally:
        await watcher.end()


async def test_a_file_that_is_written_over(tmp_path: Path) -> None:
    """One reload for each new content; none for the same content written again."""
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    async with watching(path) as reloads:
        for number in (1, 2):
            path.write_text(TEXT)
            path.write_text(f"{TEXT}# {number}\n")
            await until(lambda number=number: len(reloads.texts) == number)  # type: ignore[misc]
    assert reloads.texts == [f"{TEXT}# 1\n", f"{TEXT}# 2\n"]


async def test_a_file_that_is_renamed_over(tmp_path: Path) -> None:
    """As most editors save."""
    path, other = tmp_path / "a.yaml", tmp_path / "a.yaml~"
    path.write_text(TEXT)
    async with watching(path) as reloads:
        for number in (1, 2):
            other.write_text(f"{TEXT}# {number}\n")
            other.rename(path)
            await until(lambda number=number: len(reloads.texts) == number)  # type: ignore[misc]
    assert reloads.texts == [f"{TEXT}# 1\n", f"{TEXT}# 2\n"]


async def test_a_file_that_is_a_symlink(tmp_path: Path) -> None:
    """It may be pointed at another file."""
    path = tmp_path / "a.yaml"
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{TEXT}# {name}\n")
    path.symlink_to("one")
    async with watching(path) as reloads:
        path.unlink()
        path.symlink_to("two")
        await until(lambda: bool(reloads.texts))
    assert reloads.texts == [f"{TEXT}# two\n"]


@pytest.mark.parametrize("is_folder", [False, True])
async def test_a_config_map(tmp_path: Path, is_folder: bool) -> None:
    """Each version is seen, whether one file of the volume is the configuration or all are."""
    files = {"a.yaml": TEXT, "b.yaml": "domain: one\n"}
    volume = ConfigMapVolume(tmp_path / "config", files)
    path = volume.folder if is_folder else volume.folder / "a.yaml"
    async with watching(path) as reloads:
        volume.update(files)
        volume.update({**files, "a.yaml": f"{TEXT}# new\n"})
        await until(lambda: bool(reloads.texts))
        if is_folder:
            volume.update({"a.yaml": f"{TEXT}# new\n", "c.yaml": "domain: two\n"})
            await until(lambda: len(reloads.texts) == 2)
    assert reloads.texts[0].startswith(f"{TEXT}# new\n")
    assert reloads.texts[1:] == ([f"{TEXT}# new\ndomain: two\n"] if is_folder else [])


async def test_a_secret_file_that_changes(tmp_path: Path) -> None:
    """It is part of the configuration."""
    path, secret = tmp_path / "a.yaml", tmp_path / "secret"
    secret.write_text("http://a:1")
    path.write_text("routes:\n  /a: { upstream: '${file:secret}' }\n")
    async with watching(path) as reloads:
        secret.write_text("http://b:1")
        await until(lambda: bool(reloads.texts))


async def test_a_file_that_vanishes_is_reported_once(tmp_path: Path) -> None:
    """And noticed when it is there again."""
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    async with watching(path) as reloads:
        path.unlink()
        await until(lambda: bool(reloads.texts))
        path.write_text(TEXT)
        await until(lambda: len(reloads.texts) == 2)
    assert reloads.texts == ["", TEXT]


async def test_watching_can_be_switched_on_and_off(tmp_path: Path) -> None:
    """By the configuration itself, while the gateway runs."""
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    files = ConfigFiles(path, {})
    await asyncio.to_thread(files.load)
    looks = 0

    def digest() -> bytes:
        nonlocal looks
        looks += 1
        return files.digest()

    reloads = _Reloads(path)
    watcher = Watcher(digest, reloads.reload, files.loaded)
    watcher.start(None)
    for _ in range(20):
        await asyncio.sleep(0)
    assert looks == 0
    watcher.look_every(OFTEN_US)
    await until(lambda: looks > 2)
    watcher.look_every(None)
    await until(lambda: not watcher.is_looking)
    before = looks
    path.write_text(f"{TEXT}# new\n")
    watcher.look_every(OFTEN_US)
    await until(lambda: bool(reloads.texts))
    assert looks > before
    await watcher.end()


async def test_watching_goes_on_after_a_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a look or a reload raises is logged, and the next look takes place."""
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    reloads = 0

    async def fail() -> None:
        nonlocal reloads
        reloads += 1
        raise RuntimeError("a fault")

    files = ConfigFiles(path, {})
    await asyncio.to_thread(files.load)
    watcher = Watcher(files.digest, fail, files.loaded)
    watcher.start(OFTEN_US)
    for number in (1, 2):
        path.write_text(f"{TEXT}# {number}\n")
        await until(lambda number=number: reloads == number)  # type: ignore[misc]
    await watcher.end()
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
