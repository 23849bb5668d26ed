"""What the MySQL store does when its server fails in every way that servers do.

Nothing but a `StoreError` comes of any failure, nothing that was answered is lost, what came too
late takes nothing, and when the server is back the store is too.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.base.install_hint import install_hint
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.mysql.address import parse_mysql_url
from gateway.stores.mysql.driver import Conflict, Link, server_error
from gateway.stores.mysql.schema import MIGRATIONS
from gateway.stores.mysql.store import MySQLStore
from gateway.stores.opening import open_store
from tests.certificates import Authority
from tests.mariadb import MariaDB
from tests.processes import ROOT, free_port
from tests.servers import Certificate, until
from tests.stores.contract import BUCKET, DAY_US, LOG, ask, remaining
from tests.stores.making import making, ready, says

PASSWORD = "s3cret/word"
LIMIT = replace(BUCKET, count=1000, burst=1000)
SLOW_LOG = replace(LOG, count=1000, burst=1000)

MakeStore = Callable[..., MySQLStore]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server for all tests of this module; each leaves it running and able."""
    running = MariaDB(tmp_path_factory.mktemp("mariadb"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _empty(server: MariaDB) -> None:
    server.empty()


@pytest.fixture
async def make_store() -> AsyncIterator[MakeStore]:
    """Makes stores that are closed when the test is over."""
    async with making(MySQLStore, domain="faults", deadline_us=5_000_000) as make:
        yield make


@pytest.fixture
async def store(server: MariaDB, make_store: MakeStore) -> MySQLStore:
    """A store that is connected to the module's server."""
    return await ready(make_store(server.url))


async def outcome(store: MySQLStore, limit: Limit = LIMIT) -> str:
    """The reason why one decision failed; empty if it did not."""
    try:
        async with asyncio.timeout(10):
            await store.decide([ask(limit, "failing")])
    except StoreError as error:
        told = f"{error!r} {error} {store!r}"
        return error.reason if PASSWORD not in told else "a secret was told"
    return ""


async def reason_becomes(store: MySQLStore, reason: str, limit: Limit = LIMIT) -> None:
    """Ask until the store fails for this reason, or answers if it is empty."""
    async with asyncio.timeout(20):
        # Nothing tells when a server has changed its mind but its answers.
        while (found := await outcome(store, limit)) != reason:
            assert found != "a secret was told"
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def locked(server: MariaDB, statement: str) -> AsyncIterator[Link]:
    """Somebody else's transaction that has done this and goes on holding its locks."""
    link = await Link.open(parse_mysql_url(server.url))
    await link.run(f"SET SESSION autocommit=0 /*M! , idle_transaction_timeout=0 */; {statement}")
    try:
        yield link
    finally:
        with contextlib.suppress(StoreError):
            await link.run("ROLLBACK")
        await link.aclose()


async def test_a_server_that_is_not_there_yet(server: MariaDB, make_store: MakeStore) -> None:
    """Starting does not fail, asking fails at once, and the server is found when it comes."""
    server.stop()
    try:
        store = make_store(server.url)
        assert await outcome(store) == "not_connected"
        await store.start()
        await reason_becomes(store, "connect")
        assert not store.is_ready
        assert store.gateways == 1
    finally:
        server.start()
    await reason_becomes(store, "")
    assert store.is_ready


async def test_a_store_that_was_started_counts_at_once(
    server: MariaDB, make_store: MakeStore
) -> None:
    """With the server there, nothing need be decided alone while the connection is made."""
    store = make_store(server.url)
    await store.start()
    assert store.is_ready
    assert await outcome(store) == ""


async def test_a_crash_loses_nothing_that_was_answered(server: MariaDB, store: MySQLStore) -> None:
    """Killed in the middle of everything, the server still has every decision it answered."""
    taken = 0

    async def take() -> None:
        nonlocal taken
        with contextlib.suppress(StoreError):
            while True:
                (verdict,) = await store.decide([Ask((LIMIT, SLOW_LOG), ("k", "k"), 1, 0)])
                taken += verdict.allowed

    takers = [asyncio.create_task(take()) for _ in range(20)]
    await until(lambda: taken > 100)
    server.kill()
    await asyncio.gather(*takers)
    assert await outcome(store)
    assert not store.is_ready
    server.start()
    await reason_becomes(store, "")
    left = 1000 - taken
    # What was being written when it died may or may not have been: one ask of each taker.
    assert left - 20 <= await remaining(store, LIMIT) <= left
    assert left - 20 <= await remaining(store, SLOW_LOG) <= left


async def test_a_frozen_server(server: MariaDB, make_store: MakeStore) -> None:
    """Calls end although nothing answers, and abandoned ones take nothing."""
    patient = await ready(make_store(server.url))
    store = await ready(make_store(server.url, deadline_us=100_000))
    await patient.decide([ask(LIMIT)])
    server.freeze()
    try:
        stores = [patient] * 5 + [store] * 5
        calls = [asyncio.create_task(each.decide([ask(LIMIT)])) for each in stores]
        await asyncio.sleep(0.02)
        for call in calls[:5]:
            call.cancel()
        await until(lambda: not store.is_ready)
        results = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        server.thaw()
    assert [type(result) for result in results[:5]] == [asyncio.CancelledError] * 5
    assert all(isinstance(result, StoreTimeout | StoreUnavailable) for result in results[5:])
    await reason_becomes(store, "")
    await reason_becomes(patient, "")
    assert await remaining(patient, LIMIT) == 999


async def test_a_cancelled_call_leaves_no_lock_behind(server: MariaDB, store: MySQLStore) -> None:
    """A call that is cancelled while its rows are locked takes nothing, and the rows are free."""
    await store.decide([ask(LIMIT)])
    async with locked(server, "SELECT * FROM throttlex_usage FOR UPDATE"):
        call = asyncio.create_task(store.decide([ask(LIMIT)]))
        await until(lambda: waits_for_lock(server))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await remaining(store, LIMIT) == 999
    async with locked(server, "SELECT * FROM throttlex_usage FOR UPDATE NOWAIT"):
        pass


def waits_for_lock(server: MariaDB) -> bool:
    """Whether some transaction waits for a lock."""
    return _status(server, "Innodb_row_lock_current_waits") > 0


def lock_waits(server: MariaDB) -> int:
    """How many waits for locks have begun since the start of the server."""
    return _status(server, "Innodb_row_lock_waits")


def _status(server: MariaDB, name: str) -> int:
    ((_, value),) = server.sql(f"SHOW GLOBAL STATUS LIKE '{name}'")
    return int(value)


async def test_a_row_that_is_locked_for_long(server: MariaDB, store: MySQLStore) -> None:
    """The server's patience ends, the transaction is run again, and other keys do not wait."""
    await store.decide([ask(LIMIT, "held")])
    async with locked(server, "SELECT * FROM throttlex_usage FOR UPDATE"):
        held = asyncio.create_task(store.decide([ask(LIMIT, "held")]))
        await until(lambda: waits_for_lock(server))
        lasted_s = []
        for key in "abcd":
            began = time.monotonic()
            (verdict,) = await store.decide([ask(LIMIT, key)])
            lasted_s.append(time.monotonic() - began)
            assert verdict.allowed
        # Each would last a second with an attempt of the other; a busy machine may cost one that.
        assert sorted(lasted_s)[-2] < 0.9
        # An attempt that begins to wait follows one that has been given up.
        begun = lock_waits(server)
        await until(lambda: lock_waits(server) > begun)
        assert not held.done()
    (verdict,) = await held
    assert verdict.decisions[0].remaining == 998


async def test_a_lock_that_outlasts_the_deadline(server: MariaDB, make_store: MakeStore) -> None:
    """Then the call fails, and takes nothing later."""
    patient = await ready(make_store(server.url))
    store = await ready(make_store(server.url, deadline_us=200_000))
    await patient.decide([ask(LIMIT)])
    async with locked(server, "SELECT * FROM throttlex_usage FOR UPDATE"):
        with pytest.raises(StoreError) as caught:
            await store.decide([ask(LIMIT)])
        assert caught.value.reason in {"lock_timeout", "late"}
    assert await remaining(patient, LIMIT) == 999


async def test_a_gateway_that_stops_in_the_middle(server: MariaDB, store: MySQLStore) -> None:
    """The locks of its transaction are released: no request waits longer than that."""
    await store.decide([ask(LIMIT)])
    stopped = await Link.open(parse_mysql_url(server.url))
    await stopped.run("SELECT * FROM throttlex_usage FOR UPDATE")
    (verdict,) = await store.decide([ask(LIMIT)])
    assert verdict.decisions[0].remaining == 998
    with pytest.raises(StoreUnavailable):
        await stopped.run("COMMIT")


async def test_a_deadlock_is_run_again(server: MariaDB, store: MySQLStore) -> None:
    """The server picks our transaction as the victim, and the caller sees no error."""
    pair = Ask((LIMIT, SLOW_LOG), ("k", "k"), 1, 0)
    await store.decide([pair])
    (first,), (second,) = server.sql("SELECT id FROM throttlex_usage ORDER BY key_id")
    lock = "SELECT * FROM throttlex_usage WHERE id={} FOR UPDATE"
    # The other has written more, so it is ours that is rolled back.
    heavy = "UPDATE throttlex_policy SET capacity=capacity+1; " + lock.format(second)
    rows = ",".join(f"({number}, 'x', 1, 1, 1)" for number in range(100))
    columns = "policy_key, type, capacity, refill_rate, window_seconds"
    server.sql(f"INSERT INTO throttlex_policy ({columns}) VALUES {rows}")
    async with locked(server, heavy) as other:
        call = asyncio.create_task(store.decide([pair]))
        await until(lambda: waits_for_lock(server))
        before = deadlocks(server)
        await other.run(lock.format(first))
        await until(lambda: deadlocks(server) > before)
    (verdict,) = await call
    assert [decision.remaining for decision in verdict.decisions] == [998, 998]


def deadlocks(server: MariaDB) -> int:
    """How many the server has seen."""
    metric = "SELECT count FROM information_schema.innodb_metrics WHERE name='lock_deadlocks'"
    return int(server.sql(metric)[0][0])


async def test_keys_in_every_order_at_once(server: MariaDB, make_store: MakeStore) -> None:
    """Transactions of two gateways on the same keys, new and known, in opposite orders."""
    stores = [await ready(make_store(f"{server.url}?connections=4")) for _ in range(2)]
    limits = tuple(replace(LIMIT, scope=f"faults/{number}") for number in range(6))
    forth = Ask(limits, ("k",) * 6, 1, 0)
    back = Ask(limits[::-1], ("k",) * 6, 1, 0)
    verdicts = await asyncio.gather(
        *(store.decide([forth, back] * 4) for store in stores for _ in range(25))
    )
    assert sum(verdict.allowed for batch in verdicts for verdict in batch) == 400
    for limit in limits:
        assert await remaining(stores[0], limit) == 600


async def test_two_gateways_admit_exactly_the_limit(server: MariaDB, make_store: MakeStore) -> None:
    """Whatever the algorithm, hammering one key from two sides lets no more and no less through."""
    stores = [await ready(make_store(server.url)) for _ in range(2)]
    names = ("token_bucket", "sliding_window_log", "sliding_window_counter", "fixed_window")
    for name in (*names, "paced_history", "concurrency"):
        limit = Limit(150, 30 * DAY_US, 150, name, scope=f"faults/{name}")
        batches = await asyncio.gather(
            *(store.decide([ask(limit)] * 3) for store in stores for _ in range(40))
        )
        assert sum(verdict.allowed for batch in batches for verdict in batch) == 150, name


async def test_a_server_that_became_read_only(server: MariaDB, store: MySQLStore) -> None:
    """A failover looks like that: the connection is given up, until one may write again."""
    server.sql("SET GLOBAL read_only=1")
    try:
        assert await outcome(store) == "read_only"
    finally:
        server.sql("SET GLOBAL read_only=0")
    await reason_becomes(store, "")


async def test_too_many_connections(server: MariaDB, make_store: MakeStore) -> None:
    """The store reports it, does not flood the server, and connects when there is room."""
    admin = await Link.open(
        parse_mysql_url(f"mysql://root@localhost/sluice?unix_socket={server.socket}")
    )

    async def connections() -> int:
        results = await admin.run("SHOW GLOBAL STATUS LIKE 'Connections'")
        return int(results[0][0][1])

    await admin.run("SET GLOBAL max_connections=10")
    others = [admin]
    try:
        with contextlib.suppress(StoreError):
            while True:
                others.append(await Link.open(parse_mysql_url(server.url)))
        before = await connections()
        store = make_store(server.url)
        await store.start()
        await reason_becomes(store, "too_many_connections")
        await asyncio.sleep(0.3)
        assert await connections() - before < 30
    finally:
        await admin.run("SET GLOBAL max_connections=150")
        for other in others:
            await other.aclose()
    await reason_becomes(store, "")


async def test_killed_connections(server: MariaDB, store: MySQLStore) -> None:
    """Idle ones are replaced, and nothing that was counted is lost or counted twice."""
    await store.decide([ask(LIMIT)])
    for _ in range(5):
        for (number,) in server.sql(
            "SELECT id FROM information_schema.processlist WHERE user='gateway'"
        ):
            server.sql(f"KILL {number}")
        await reason_becomes(store, "")
    assert await remaining(store, LIMIT) == 999


async def test_a_connection_that_ends_while_committing(server: MariaDB, store: MySQLStore) -> None:
    """Whether it was written is not known then: the call fails, and is not made twice."""
    await store.decide([ask(LIMIT)])
    async with locked(server, "LOCK TABLES throttlex_sw_log READ") as other:
        # Its row can be locked and read, but its log cannot be written.
        call = asyncio.create_task(store.decide([ask(SLOW_LOG)]))
        query = "SELECT id FROM information_schema.processlist WHERE state LIKE '%metadata lock%'"
        await until(lambda: bool(server.sql(query)))
        ((victim,),) = server.sql(query)
        server.sql(f"KILL {victim}")
        with pytest.raises(StoreUnavailable) as caught:
            await call
        assert caught.value.reason == "connection_lost"
        await other.run("UNLOCK TABLES")
    assert await remaining(store, SLOW_LOG) == 1000


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE throttlex_usage, throttlex_sw_log, sluice_schema",
        "DROP TABLE throttlex_sw_log",
        "ALTER TABLE throttlex_usage DROP sluice_state, DROP sluice_expires",
        "ALTER TABLE throttlex_usage DROP INDEX idx_sluice_expires",
        "DROP TABLE sluice_gateways",
    ],
    ids=["all", "one", "columns", "index", "gateways"],
)
async def test_tables_that_vanish_are_made_again(
    server: MariaDB, make_store: MakeStore, change: str
) -> None:
    """Dropping them, or restoring a dump without the added tables, stops nothing."""
    store = await ready(make_store(server.url, heartbeat_s=0.05, tidy_every_s=0.05))
    await store.decide([ask(LIMIT, "failing"), ask(SLOW_LOG, "failing")])
    tables = "SELECT COUNT(*) FROM information_schema.{} WHERE table_schema='sluice'"
    counts = [tables.format(view) for view in ("tables", "columns", "statistics")]
    whole = [server.sql(query) for query in counts]
    server.sql(change)
    await reason_becomes(store, "")
    await reason_becomes(store, "", SLOW_LOG)
    await until(lambda: [server.sql(query) for query in counts] == whole)


async def test_gateways_that_start_at_once_make_the_tables_once(server: MariaDB) -> None:
    """Each version is noted once, and all of them are served."""
    server.sql("DROP DATABASE sluice; CREATE DATABASE sluice")
    stores = [MySQLStore(server.url, domain="faults") for _ in range(4)]
    await asyncio.gather(*(store.start() for store in stores))
    await until(lambda: all(store.is_ready for store in stores))
    await asyncio.gather(*(store.aclose() for store in stores))
    versions = server.sql("SELECT version, name FROM sluice_schema ORDER BY version")
    assert versions == [(str(n), name) for n, (name, _) in enumerate(MIGRATIONS, 1)]


async def test_a_connection_that_is_being_made_can_be_cancelled_at_any_moment(
    server: MariaDB,
) -> None:
    """Closing a store waits for that, so no cancellation may be lost on the way."""
    for turns in range(60):
        opening = asyncio.create_task(Link.open(parse_mysql_url(server.url)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if opening.cancel():
            with pytest.raises(asyncio.CancelledError):
                (await opening).drop()
        else:
            opening.result().drop()


async def test_a_user_that_may_not_change_tables(server: MariaDB, make_store: MakeStore) -> None:
    """With the tables there, reading and writing rows is all that a gateway must be allowed."""
    owner = await ready(make_store(server.url))
    server.sql(
        "CREATE USER IF NOT EXISTS humble@'127.0.0.1' IDENTIFIED BY 'h';"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON sluice.* TO humble@'127.0.0.1'"
    )
    url = f"mysql://humble:h@127.0.0.1:{server.port}/sluice"
    humble = await ready(make_store(url))
    assert await outcome(humble) == ""
    await owner.aclose()  # It may change tables, and would make those that are gone.
    server.sql("DROP DATABASE sluice; CREATE DATABASE sluice")
    await reason_becomes(humble, "access_denied")
    server.sql("DROP USER humble@'127.0.0.1'")


async def test_what_is_written_while_a_clock_is_set(server: MariaDB, store: MySQLStore) -> None:
    """Sessions have no time zone, whatever the server's is: nothing jumps."""
    await store.decide([ask(LIMIT)])
    server.sql("SET GLOBAL time_zone='+13:00'")
    try:
        other = await ready(MySQLStore(server.url, domain="faults"))
        (verdict,) = await other.decide([ask(LIMIT, cost=0)])
        await other.aclose()
    finally:
        server.sql("SET GLOBAL time_zone='SYSTEM'")
    assert verdict.decisions[0].remaining == 999
    assert verdict.decisions[0].reset_us <= DAY_US // 1000 + 1


async def test_gateways_are_counted(server: MariaDB, make_store: MakeStore) -> None:
    """Each sees all; one that closes is gone at once, one that died soon."""
    stores = [await ready(make_store(server.url, heartbeat_s=0.1)) for _ in range(3)]
    await until(lambda: {store.gateways for store in stores} == {3})
    await stores[2].aclose()
    await until(lambda: {store.gateways for store in stores[:2]} == {2})
    server.sql("INSERT INTO sluice_gateways VALUES ('faults', 'silent', 1), ('other', 'x', 1<<60)")
    await until(lambda: {store.gateways for store in stores[:2]} == {2})


async def test_what_has_expired_is_removed(server: MariaDB, make_store: MakeStore) -> None:
    """Rows and logs go in pieces; what still counts stays, and so does what others wrote."""
    store = await ready(make_store(server.url))
    asks = [Ask((LIMIT, SLOW_LOG), (f"k{n}", f"k{n}"), 1, 0) for n in range(450)]
    await store.decide(asks)
    server.sql(
        "UPDATE throttlex_usage SET sluice_expires=1 WHERE key_id NOT LIKE '%:k7#%';"
        "UPDATE throttlex_usage SET tokens=3 WHERE key_id LIKE '%bucket:k8#%';"
        "INSERT INTO throttlex_usage VALUES (NULL, '192.0.2.1', 5, 1, NULL, NULL)"
    )
    await ready(make_store(server.url, heartbeat_s=0.02, tidy_every_s=0.02))
    left = "SELECT COUNT(*), COUNT(sluice_expires) FROM throttlex_usage"
    await until(lambda: server.sql(left) == [("4", "2")])
    assert len(server.sql("SELECT * FROM throttlex_sw_log")) == 1
    assert await remaining(store, SLOW_LOG, "k7") == 999


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x01\x00\x00\x00\x0a", b""]
)
async def test_a_server_that_is_no_mysql(make_store: MakeStore, answer: bytes) -> None:
    """Whatever answers at that address, it is never ready and nothing but a `StoreError` comes."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        store = make_store(f"mysql://u:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{port}/d")
        await store.start()
        await reason_becomes(store, "connect")
        assert not store.is_ready
        await store.aclose()


async def test_a_wrong_password(server: MariaDB, make_store: MakeStore) -> None:
    """The error is that access is denied, and never shows the password."""
    store = make_store(server.url.replace("word", "wort"))
    await store.start()
    await reason_becomes(store, "access_denied")


async def test_over_tls(tmp_path: Path) -> None:
    """With a certificate that is checked; without one that fits, there is no connection."""
    key, cert = Certificate.make(tmp_path)
    options = (f"--ssl-cert={cert}", f"--ssl-key={key}", "--require-secure-transport=ON")
    server = MariaDB(tmp_path / "server", options)
    server.start()
    try:
        url = f"{server.url}?ssl_ca_certs={cert}"
        # Reading certificates blocks, so it is done as an application would: not in the loop.
        store = await asyncio.to_thread(MySQLStore, url, domain="faults", deadline_us=5_000_000)
        await ready(store)
        assert await outcome(store) == ""
        await store.aclose()
        distrustful = await asyncio.to_thread(MySQLStore, f"{server.url}?ssl=true", domain="x")
        await distrustful.start()
        await reason_becomes(distrustful, "connect")
        await distrustful.aclose()
    finally:
        server.stop()


async def test_certificates_that_lack_extensions(tmp_path: Path) -> None:
    """Every Python accepts them, unless `ssl_strict=true`; then the error names the extension."""
    private = Authority(tmp_path / "ca", is_complete=False)
    shown = private.issue("127.0.0.1")
    server = MariaDB(tmp_path / "server", (f"--ssl-cert={shown.cert}", f"--ssl-key={shown.key}"))
    server.start()
    try:
        for option in ("", "&ssl_strict=false", "&ssl_strict=true"):
            url = f"{server.url}?ssl_ca_certs={private.file}{option}"
            store = await asyncio.to_thread(MySQLStore, url, domain="faults", deadline_us=5_000_000)
            if "true" in option:
                await store.start()
                await says(store, "Missing Authority Key Identifier")
            else:
                await ready(store)
                assert await outcome(store) == ""
            await store.aclose()
    finally:
        server.stop()


def test_error_answers_are_told_apart() -> None:
    """A conflict may be run again, a server that cannot serve is named, the rest is a reply."""
    kinds = {
        1213: (Conflict, "deadlock"),
        1836: (StoreUnavailable, "read_only"),
        1040: (StoreUnavailable, "too_many_connections"),
        2006: (StoreUnavailable, "connection_lost"),
        1114: (StoreUnavailable, "full"),
        1064: (StoreReplyError, "reply"),
    }
    for code, (kind, reason) in kinds.items():
        error = server_error(RuntimeError(code, "text"))
        assert (type(error), error.reason) == (kind, reason)
    for option, reason in {
        "--read-only": "read_only",
        "--super-read-only": "read_only",
        "NO_ENGINE_SUBSTITUTION": "settings",
    }.items():
        assert server_error(RuntimeError(1290, f"with the {option} option")).reason == reason


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@host/db",
        "mysql://:s3cret@host",
        "mysql://:s3cret@host/a/b",
        "mysql://:s3cret@host:port/db",
        "mysql://host/db?password=s3cret",
        "mysql://host/db?connections=s3cret",
        "mysql://host/db?ssl=s3cret",
        "mysql://host/db?ssl_ca_certs=/does/not/s3cret",
        "mysql://host/db?ssl_keyfile=s3cret",
        "mysql://:s3cret@[::1/db",
    ],
)
def test_unusable_urls_are_refused_without_telling_secrets(url: str) -> None:
    """The operator learns what is wrong, a log never learns the password."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - every text is looked at
        parse_mysql_url(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_usable_urls() -> None:
    """Everything that may be in one is found; the password is not shown."""
    url = "mysql://user:s3cret%40@[::1]:7000/my%20db?throttlex=api/ip&unix_socket=/run/x&connections=5"
    address = parse_mysql_url(url)
    assert (address.host, address.port, address.database) == ("::1", 7000, "my db")
    assert (address.username, address.password) == ("user", "s3cret@")
    assert (address.throttlex, address.connections) == ("api/ip", 5)
    assert "s3cret" not in f"{address!r} {address}"
    assert str(address) == "/run/x/my db"
    assert str(parse_mysql_url("mysql://db/sluice")) == "db:3306/sluice"


async def test_the_store_of_a_url() -> None:
    """`open_store` knows the scheme; nothing is connected yet."""
    store = open_store(f"mysql://127.0.0.1:{free_port()}/d", domain="x", deadline_us=1)
    assert isinstance(store, MySQLStore)
    assert not store.is_ready


def test_without_its_driver() -> None:
    """The error names the extra to install."""
    program = (
        "import sys; sys.modules['asyncmy'] = None\n"
        "from gateway.base.errors import ConfigError\n"
        "from gateway.stores.opening import open_store\n"
        "try: open_store('mysql://h/d', domain='x', deadline_us=1)\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert install_hint("mysql") in done.stdout
