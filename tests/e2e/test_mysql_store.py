"""Gateways whose counts are in a MySQL or MariaDB server that was set up for something else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from hashlib import sha1
from typing import Final
from urllib.parse import quote

import aiohttp
import pytest

from tests.conftest import StartGateway
from tests.e2e.load import ask
from tests.e2e.signs import wait_for_metric
from tests.mariadb import MYSQLD, MariaDB
from tests.upstreams import Upstream

# A loaded machine is no reason to decide alone.
CONFIG: Final = """
store: {{ url: "{store}", deadline: 20s }}
policies:
  one: {{ limit: "150/h per header:X-Key", algorithm: sliding_window_log }}
routes:
  /**: {{ upstream: {url}, policies: one }}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server for all tests of this module."""
    running = MariaDB(tmp_path_factory.mktemp("mariadb"))
    running.start()
    yield running
    running.stop()


async def statuses(urls: list[str], key: str, times: int) -> Counter[int]:
    """What so many requests are answered, at each address."""
    async with aiohttp.ClientSession() as session:
        samples = await asyncio.gather(
            *(ask(session, url, key) for _ in range(times) for url in urls)
        )
    return Counter(sample.status for sample in samples)


@pytest.mark.parametrize(
    "settings",
    [
        "sql_select_limit=100",
        "innodb_default_row_format=compact",
    ],
)
async def test_a_limit_holds_on_a_server_that_was_set_up_for_something_else(
    start_gateway: StartGateway, nginx_upstream: Upstream, server: MariaDB, settings: str
) -> None:
    """Two gateways make the tables they need, and of 400 requests 150 pass."""
    server.sql("DROP DATABASE sluice; CREATE DATABASE sluice", "")
    name, _, _ = settings.partition("=")
    server.sql(f"SET GLOBAL {settings}", "")
    try:
        config = CONFIG.format(store=server.url, url=nginx_upstream.url)
        gateways = [start_gateway(config) for _ in range(2)]
        assert all(wait_for_metric(gateway, "sluice_store_ready", 1) for gateway in gateways)
        answers = await statuses([f"{gateway.url}/1k" for gateway in gateways], "k", 200)
        assert answers == {200: 150, 429: 250}
    finally:
        server.sql(f"SET GLOBAL {name}=DEFAULT", "")


CREDENTIALS: Final = (
    ("zoë", "pässwörd"),
    ("użytkownik", "zażółć gęślą jaźń"),
    ("日本", "パスワード"),
    ("a:b@c/d", "p:a@s/s?w#o%41r d+&=[]"),
    ("blank user", " before and behind "),
    ("quote'", '"back\\slash'),
    ("empty", ""),
    ("long" * 8, "x" * 1500),
)


@pytest.mark.parametrize(("user", "password"), CREDENTIALS)
async def test_whoever_may_log_in_can(
    start_gateway: StartGateway,
    nginx_upstream: Upstream,
    server: MariaDB,
    user: str,
    password: str,
) -> None:
    """A name and a password that the server took from its own client are those of a gateway."""
    let_in(server, user, f"BY {quoted(password)}")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    await counts(start_gateway, nginx_upstream, server, login)


@pytest.mark.skipif(bool(MYSQLD), reason="MySQL has no keys by ed25519")
async def test_a_user_with_a_key_by_ed25519_can_log_in(
    start_gateway: StartGateway, nginx_upstream: Upstream, server: MariaDB
) -> None:
    """What the library needs for that belongs to what is installed for MySQL."""
    server.sql("INSTALL SONAME 'auth_ed25519'", "")
    let_in(server, "keyed", "VIA ed25519 USING PASSWORD('gęheim')")
    await counts(start_gateway, nginx_upstream, server, f"keyed:{quote('gęheim')}")


async def test_a_password_of_bytes_that_are_no_text(
    start_gateway: StartGateway, nginx_upstream: Upstream, server: MariaDB
) -> None:
    """One that was set by a client that spoke Latin-1 is written byte by byte."""
    server.sql("SET NAMES latin1; DROP USER IF EXISTS old@'127.0.0.1'", "")
    let_in(server, "old", "BY PASSWORD '" + native(b"caf\xe9") + "'")
    await counts(start_gateway, nginx_upstream, server, "old:caf%E9")


def native(password: bytes) -> str:
    """What a server keeps of a password that is no text, by `mysql_native_password`."""
    twice = sha1(sha1(password).digest())  # noqa: S324 - the server's way
    return f"*{twice.hexdigest().upper()}"


def quoted(text: str) -> str:
    """A text in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def let_in(server: MariaDB, user: str, identified: str) -> None:
    """A user who may do in our database what a gateway does."""
    name = f"{quoted(user)}@'127.0.0.1'"
    server.sql(
        f"SET NAMES utf8mb4; CREATE USER {name} IDENTIFIED {identified};"
        f" GRANT ALL ON sluice.* TO {name}",
        "",
    )


async def counts(
    start_gateway: StartGateway, upstream: Upstream, server: MariaDB, login: str
) -> None:
    """A gateway with these credentials lets through what the limit says, by the server's counts."""
    address = f"127.0.0.1:{server.port}/sluice"
    gateway = start_gateway(CONFIG.format(store=f"mysql://{login}@{address}", url=upstream.url))
    assert wait_for_metric(gateway, "sluice_store_ready", 1)
    server.empty()
    answers = await statuses([f"{gateway.url}/1k"], login, 5)
    assert answers == {200: 5}
    assert server.sql("SELECT COUNT(*) FROM throttlex_sw_log") == [("5",)]
