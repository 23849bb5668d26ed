"""Looking at files now and then."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from gateway.base.renewal import Renewal
from gateway.net.tls.client import UpstreamTls
from gateway.net.tls.files import KeyPair
from gateway.net.tls.server import ServerTls
from tests.certificates import Authority, Issued
from tests.servers import until


async def _server(pair: Issued) -> ServerTls:
    tls = ServerTls([KeyPair(*pair)], "1.2", None, is_strict=False)
    await asyncio.to_thread(tls.load)
    return tls


async def test_changes_are_seen_without_being_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each user separately; a bad change is logged once, and the next one is tried."""
    caplog.set_level(logging.INFO)
    authority = Authority(tmp_path)
    pairs = [authority.issue("a"), authority.issue("b")]
    users = [await _server(pair) for pair in pairs]
    before = [user.expiries for user in users]
    times: list[int] = []
    renewal = Renewal(users, lambda: times.append(1), interval_s=0.01)
    renewal.start()
    pairs[0].key.write_bytes(pairs[1].key.read_bytes())
    await until(lambda: "is not the key of" in caplog.text)
    await asyncio.sleep(0.1)
    assert caplog.text.count("is not the key of") == 1
    assert [user.expiries for user in users] == before
    assert not times
    pairs[0].cert.write_bytes(pairs[1].cert.read_bytes())
    await until(lambda: len(times) == 1)
    assert users[0].expiries[str(pairs[0].cert)] == users[1].expiries[str(pairs[1].cert)]
    await renewal.end()


async def test_what_several_use_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Listeners that share a certificate do not each complain of it."""
    authority = Authority(tmp_path)
    shared, other = authority.issue("a"), authority.issue("b")
    renewal = Renewal([await _server(one) for one in (shared, shared, other)], lambda: None, 60)
    renewal.start()
    shared.key.write_bytes(other.key.read_bytes())
    other.cert.write_bytes(b"nothing")
    renewal.look_now()
    await until(lambda: str(other.cert) in caplog.text)
    assert caplog.text.count("is not the key of") == 1
    await renewal.end()


async def test_a_file_that_is_gone_for_a_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was in use stays, and is read again when it is back."""
    authority = Authority(tmp_path)
    pair = authority.issue("a")
    user = await _server(pair)
    before, times = user.expiries, list[int]()
    renewal = Renewal([user], lambda: times.append(1), interval_s=0.01)
    renewal.start()
    aside = pair.cert.rename(tmp_path / "aside")
    await until(lambda: "cannot be read" in caplog.text)
    assert user.expiries == before
    aside.rename(pair.cert)
    await until(lambda: len(times) == 1)
    assert user.expiries == before
    await renewal.end()


async def test_nothing_to_look_at() -> None:
    """An upstream that is verified by the system's authorities has no files."""
    renewal = Renewal([UpstreamTls(None, None)], lambda: None)
    renewal.start()
    assert not renewal.is_running
    await renewal.end()


async def test_a_pipe_holds_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is no certificate, and what comes to its place is used."""
    caplog.set_level(logging.INFO)
    authority = Authority(tmp_path)
    pair, other = authority.issue("a"), authority.issue("b")
    user = await _server(pair)
    times: list[int] = []
    renewal = Renewal([user], lambda: times.append(1), interval_s=0.01)
    renewal.start()
    pair.cert.unlink()
    os.mkfifo(pair.cert)
    await until(lambda: f"{pair.cert} cannot be read: it is not a regular file" in caplog.text)
    pair.cert.unlink()
    pair.replace_by(other)
    await until(lambda: bool(times))
    await renewal.end()
