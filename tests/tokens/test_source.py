"""Keys that change while tokens come: files, and what an issuer publishes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from gateway.base.errors import StartError
from gateway.base.threads import in_thread
from gateway.tokens.keys import KeySet, parse_keys
from gateway.tokens.source import MAX_BYTES, FetchError, FixedKeys, WatchedKeys, fetch
from tests.issuer import Issuer
from tests.servers import until
from tests.tokens.test_verifier import EC, RSA, jwk_of, jwks_of

ONE, TWO = jwks_of(jwk_of(RSA, kid="one")), jwks_of(jwk_of(EC, kid="two"))
parse = partial(parse_keys, algorithms=["RS256", "ES256"])


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer with one key."""
    with Issuer(ONE) as server:
        yield server


@asynccontextmanager
async def watched(
    name: str | Path, *, interval_s: float = 3600, refetch_s: float = 3600
) -> AsyncIterator[WatchedKeys]:
    """Keys of a file or a URL, in use."""
    is_file = isinstance(name, Path)
    read = partial(in_thread, name.read_bytes) if isinstance(name, Path) else partial(fetch, name)
    keys = WatchedKeys(
        str(name),
        read,
        parse,
        KeySet([]),
        interval_s=interval_s,
        refetch_s=refetch_s,
        is_needed=is_file,
    )
    await keys.start()
    yield keys
    await keys.aclose()


def has(keys: WatchedKeys | FixedKeys, kid: str) -> bool:
    """Whether there is a key of this ID."""
    names: Sequence[str] = ("RS256", "ES256")
    return any(keys.keys.find(kid, name) for name in names)


async def test_keys_are_fetched_and_fetched_again(issuer: Issuer) -> None:
    """At the start and then in intervals; what stays the same is the same object."""
    async with watched(issuer.url, interval_s=0.05) as keys:
        assert has(keys, "one")
        first = keys.keys
        await until(lambda: issuer.asked >= 3)
        assert keys.keys is first
        issuer.content = TWO
        await until(lambda: has(keys, "two"))
        assert not has(keys, "one")


async def test_an_unknown_key_is_looked_for_once(issuer: Issuer) -> None:
    """However many tokens name one: made-up IDs cannot make the gateway hammer an issuer."""
    async with watched(issuer.url, refetch_s=0.5) as keys:
        issuer.content = TWO
        for _ in range(1000):
            keys.want_newer()
        await until(lambda: has(keys, "two"))
        assert issuer.asked == 2


@pytest.mark.parametrize("fault", ["down", "status", "redirect", "broken", "empty", "large"])
async def test_the_last_known_keys_stay(
    issuer: Issuer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with the issuer, however long; it is logged once, and its end too."""
    caplog.set_level(logging.INFO, "gateway.tokens")
    async with watched(issuer.url, interval_s=0.05) as keys:
        first = keys.keys
        if fault == "down":
            await asyncio.to_thread(issuer.stop)
        elif fault in {"status", "redirect"}:
            issuer.status = 503 if fault == "status" else 302
        else:
            issuer.content = {
                "broken": ONE[:-9],
                "empty": b'{"keys": []}',
                "large": ONE + b" " * MAX_BYTES,
            }[fault]
        looks = keys.looks
        await until(lambda: keys.looks >= looks + 3)
        assert keys.keys is first
        warned = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert len(warned) == 1
        assert "the last known keys stay in use" in warned[0].getMessage()
        if fault == "down":
            with Issuer(TWO, issuer.port):
                await until(lambda: has(keys, "two"))
        else:
            issuer.status, issuer.content = 200, TWO
            await until(lambda: has(keys, "two"))


async def test_a_slow_issuer_is_not_waited_for_long(issuer: Issuer) -> None:
    """A start goes on without keys, and a fetch ends in time."""
    issuer.pause_s = 1
    with pytest.raises(TimeoutError):
        await fetch(issuer.url, 0.2)
    loop = asyncio.get_running_loop()
    issuer.pause_s = 3
    before = loop.time()
    async with watched(issuer.url) as keys:
        assert loop.time() - before < 2.9
        assert not has(keys, "one")
        await until(lambda: has(keys, "one"))


async def test_what_cannot_be_fetched() -> None:
    """Errors of the network are those of aiohttp."""
    with Issuer(b"x", 0) as issuer:
        assert await fetch(issuer.url) == b"x"
        issuer.status = 404
        with pytest.raises(FetchError, match="404"):
            await fetch(issuer.url)
        url = issuer.url
    with pytest.raises(aiohttp.ClientError):
        await fetch(url)


async def test_a_file_is_watched(tmp_path: Path) -> None:
    """It is looked at again; what is half-written is not used, and the keys before stay."""
    file = tmp_path / "keys.json"
    file.write_bytes(ONE)
    async with watched(file, interval_s=0.02) as keys:
        assert has(keys, "one")
        file.write_bytes(TWO[: len(TWO) // 2])
        looks = keys.looks
        await until(lambda: keys.looks >= looks + 3)
        assert has(keys, "one")
        file.unlink()
        looks = keys.looks
        await until(lambda: keys.looks >= looks + 2)
        assert has(keys, "one")
        file.write_bytes(TWO)
        await until(lambda: has(keys, "two"))


async def test_a_file_is_read_at_once_when_it_is_asked_for(tmp_path: Path) -> None:
    """A reload of the configuration takes it up."""
    file = tmp_path / "keys.json"
    file.write_bytes(ONE)
    async with watched(file) as keys:
        file.write_bytes(TWO)
        keys.look_now()
        await until(lambda: has(keys, "two"))


@pytest.mark.parametrize("content", [None, b"nothing"])
async def test_a_file_must_have_keys_to_begin_with(tmp_path: Path, content: bytes | None) -> None:
    """Otherwise the gateway does not start."""
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartError, match=r"keys\.json"):
        async with watched(file):
            pass


async def test_fixed_keys_stay() -> None:
    """A secret is in the configuration."""
    keys = FixedKeys(parse(ONE))
    await keys.start()
    keys.want_newer()
    keys.look_now()
    assert has(keys, "one")
    await keys.aclose()
