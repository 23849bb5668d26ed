"""A database that ThrottleX's service made and uses: its keys, its policies, its arithmetic.

The store counts for policies in ThrottleX's words; the service goes on beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from fractions import Fraction
from typing import Final

import pytest

from gateway.limits.decision import NEVER, Verdict
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.rate import Limit
from gateway.limits.throttlex import (
    SLIDING_WINDOW,
    TOKEN_BUCKET,
    Numbers,
    limit_of,
    scope_of,
)
from gateway.routing.keys import identity
from gateway.stores.base import Ask
from gateway.stores.mysql import policies as mysql_policies
from gateway.stores.mysql.policies import PolicyReader
from gateway.stores.mysql.store import MySQLStore
from tests.mariadb import MYSQLD, MariaDB
from tests.servers import until
from tests.stores.contract import decide
from tests.throttlex import Service

KEY: Final = "user:Ann|route:/v1/pay"
SCOPE: Final = scope_of("api")
# 100 at once and one more every 100 s: nothing refills while a test runs.
SLOW: Final = Limit(1, 100_000_000, 100, scope=SCOPE)
NEVER_REFILLED: Final = limit_of(Numbers(TOKEN_BUCKET, 100, Fraction(0)), SCOPE)
LOG: Final = limit_of(Numbers(SLIDING_WINDOW, 10, window_seconds=86_400), SCOPE)


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[MySQLStore]:
    """A store that is ready."""
    store = MySQLStore(url, domain="x", deadline_us=5_000_000)
    await store.start()
    try:
        await until(lambda: store.is_ready)
        yield store
    finally:
        await store.aclose()


@pytest.fixture
async def store(mariadb: MariaDB, throttlex_service: Service) -> AsyncIterator[MySQLStore]:
    """A store in the service's database."""
    async with opened(mariadb.url) as one:
        yield one


def ask(limit: Limit, key: str = KEY, cost: int = 1) -> Ask:
    """A question about one key."""
    return Ask((limit,), (key,), cost, 0)


async def take(store: MySQLStore, limit: Limit, key: str = KEY, cost: int = 1) -> Verdict:
    """What is said of one request."""
    return (await decide(store, ask(limit, key, cost)))[0]


async def left(store: MySQLStore, limit: Limit, key: str = KEY) -> int:
    """How many may pass now."""
    return (await take(store, limit, key, 0)).decisions[0].remaining


@pytest.mark.parametrize("limit", [NEVER_REFILLED, SLOW], ids=["never", "slow"])
async def test_a_bucket_in_turns(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service, limit: Limit
) -> None:
    """Request by request, both admit exactly one bucket, and report the same state."""
    throttlex_service.put_policy(KEY, TOKEN_BUCKET, 100)
    passed = 0
    for _ in range(12):
        theirs = await asyncio.to_thread(throttlex_service.check, KEY)
        passed += theirs.allowed
        assert await left(store, limit) == theirs.tokens
        verdicts = await decide(store, *[ask(limit)] * 9)
        passed += sum(verdict.allowed for verdict in verdicts)
        ((tokens,),) = mariadb.sql("SELECT tokens FROM throttlex_usage")
        assert int(tokens) == verdicts[-1].decisions[0].remaining
    assert passed == 100
    assert not (await asyncio.to_thread(throttlex_service.check, KEY)).allowed
    assert mariadb.sql("SELECT COUNT(*) FROM throttlex_usage") == [("1",)]


async def test_a_bucket_that_refills_in_turns(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service
) -> None:
    """Both find what was refilled since the other looked, and no more than one bucket gives."""
    fast = limit_of(Numbers(TOKEN_BUCKET, 5, Fraction(20)), SCOPE)
    throttlex_service.put_policy(KEY, TOKEN_BUCKET, 5, 20)
    started = time.monotonic()
    theirs = ours = 0
    while min(theirs, ours) < 8:
        theirs += (await asyncio.to_thread(throttlex_service.check, KEY)).allowed
        ours += (await take(store, fast)).allowed
    # A full bucket of its may carry a part of a token on.
    assert theirs + ours <= 5 + 20 * (time.monotonic() - started) + 1


async def test_a_log_in_turns(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service
) -> None:
    """Each sees the other's requests, one row for each; the tokens are no business of a log."""
    throttlex_service.put_policy(KEY, SLIDING_WINDOW, 10, window_s=86_400)
    for _ in range(3):
        assert (await asyncio.to_thread(throttlex_service.check, KEY)).allowed
        assert all(verdict.allowed for verdict in await decide(store, *[ask(LOG)] * 2))
    assert (await asyncio.to_thread(throttlex_service.check, KEY)).allowed
    assert not (await take(store, LOG)).allowed
    assert not (await asyncio.to_thread(throttlex_service.check, KEY)).allowed
    assert mariadb.sql(f"SELECT COUNT(*) FROM throttlex_sw_log WHERE key_id='{KEY}'") == [("10",)]
    assert mariadb.sql("SELECT key_id, tokens FROM throttlex_usage") == [(KEY, "10")]


async def test_what_the_service_left_is_taken_over(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service
) -> None:
    """Tokens at their moment, with what was refilled since, and the requests of its log."""
    now_ms = time.time_ns() // 1_000_000
    mariadb.sql(
        "INSERT INTO throttlex_usage (key_id, tokens, last_refill) VALUES"
        f" ('bucket', 40, {now_ms - 250_000}), ('window', 10, {now_ms});"
        "INSERT INTO throttlex_sw_log (key_id, request_time) VALUES"
        f" ('window', {now_ms - 86_401_000}), ('window', {now_ms - 1_000})"
    )
    assert (await take(store, SLOW, "bucket", 10)).decisions[0].remaining == 32
    ((tokens, refill),) = mariadb.sql(
        "SELECT tokens, last_refill FROM throttlex_usage WHERE key_id='bucket'"
    )
    assert (int(tokens), int(refill)) == (32, now_ms - 50_000)
    assert (await take(store, LOG, "window")).decisions[0].remaining == 8


@pytest.mark.parametrize("key", ["Key-1", "a b", "Ann@example.com", "/v1/%7C?x=[1]&y"])
async def test_keys_have_its_names(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service, key: str
) -> None:
    """Whatever of printable ASCII stands in a key; one of another case is the same to its table."""
    assert (await asyncio.to_thread(throttlex_service.check, key)).tokens == 99
    assert await left(store, SLOW, key) == 99
    await take(store, SLOW, key.upper())
    assert await left(store, SLOW, key.lower()) == 98
    assert mariadb.sql("SELECT COUNT(*) FROM throttlex_usage") == [("1",)]


async def test_what_cannot_stand_between_quotes_has_a_name_of_its_own(
    mariadb: MariaDB, store: MySQLStore
) -> None:
    """It is counted all the same, and nothing is read as SQL."""
    for key in ("it's", "back\\", '"', "' OR 1=1 -- ", "x" * 500):
        await take(store, SLOW, key, 30)
        assert await left(store, SLOW, key) == 70
    assert mariadb.sql("SELECT COUNT(*) FROM throttlex_usage WHERE key_id LIKE '%#%'") == [("5",)]


async def test_a_table_that_tells_capitals_from_small_letters(
    mariadb: MariaDB, throttlex_service: Service
) -> None:
    """There they are two keys, to both."""
    column = "ALTER TABLE throttlex_usage MODIFY key_id VARCHAR(255) COLLATE {} NOT NULL"
    mariadb.sql(column.format("utf8mb4_bin"))
    async with opened(mariadb.url) as store:
        await take(store, SLOW, "Ann", 30)
        assert await left(store, SLOW, "ann") == 100
        assert (await asyncio.to_thread(throttlex_service.check, "Ann")).tokens >= 69
    mariadb.sql(column.format("utf8mb4_general_ci"))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("203.0.113.7", "203.0.113.7\u200b"), ("strasse", "stra\u00dfe"), ("ann", "\u00c5nn ")],
    ids=["ignored", "longer", "accent"],
)
@pytest.mark.parametrize("limit", [NEVER_REFILLED, LOG], ids=["bucket", "log"])
async def test_keys_that_only_the_table_takes_for_one(
    mariadb: MariaDB, throttlex_service: Service, ours: str, theirs: str, limit: Limit
) -> None:
    """The server decides what is equal: clients of ThrottleX choose its keys."""
    mariadb.sql(
        "ALTER TABLE throttlex_usage MODIFY key_id VARCHAR(255) COLLATE utf8mb4_unicode_520_ci;"
        "ALTER TABLE throttlex_sw_log MODIFY key_id VARCHAR(255) COLLATE utf8mb4_unicode_520_ci;"
        f"INSERT INTO throttlex_usage (key_id, tokens, last_refill) VALUES ('{theirs}', 7, 1);"
        "INSERT INTO throttlex_sw_log (key_id, request_time) VALUES "
        + ",".join([f"('{theirs}', 1000 * UNIX_TIMESTAMP())"] * 3)
    )
    async with opened(mariadb.url) as store:
        others = [ask(limit, f"other-{number}") for number in range(5)]
        verdicts = await decide(store, *others, ask(limit, ours))
        assert [one.decisions[0].remaining for one in verdicts] == [limit.count - 1] * 5 + [6]
    assert mariadb.sql(f"SELECT COUNT(*) FROM throttlex_usage WHERE key_id='{ours}'") == [("1",)]


async def test_rows_that_the_service_never_writes(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service
) -> None:
    """A number that is missing or out of all bounds stops neither its key nor the others."""
    mariadb.sql(
        "ALTER TABLE throttlex_usage MODIFY tokens BIGINT, MODIFY last_refill BIGINT;"
        "ALTER TABLE throttlex_sw_log MODIFY request_time BIGINT;"
        "INSERT INTO throttlex_usage (key_id, tokens, last_refill)"
        " VALUES ('bucket', NULL, NULL), ('log', NULL, NULL);"
        "INSERT INTO throttlex_sw_log (key_id, request_time)"
        f" VALUES ('log', NULL), ('log', {-(2**63)}), ('log', {2**63 - 1})"
    )
    asks = [ask(NEVER_REFILLED, "bucket"), ask(SLOW, "bucket"), ask(LOG, "log"), ask(LOG, "other")]
    verdicts = await asyncio.gather(*(decide(store, one) for one in asks))
    # Nothing is left of no tokens; since ever so long the bucket has been refilled; of the
    # log only what lies ahead counts, as it does there.
    assert [one.decisions[0].remaining for (one,) in verdicts] == [0, 99, 8, 9]


async def test_tokens_outlive_a_change_of_numbers(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service
) -> None:
    """As many are left as were, up to the new capacity; they come back by the new rate."""
    began = time.monotonic()
    await take(store, SLOW, cost=98)
    for capacity, expected in ((200, 2), (50, 2), (1, 1)):
        assert await left(store, Limit(1, 90_000_000, capacity, scope=SCOPE)) == expected
    quick = limit_of(Numbers(TOKEN_BUCKET, 100, Fraction(1)), SCOPE)
    mariadb.sql("UPDATE throttlex_usage SET last_refill=last_refill - 10000")
    # One more for each second that it has taken to get here: commits wait for a disk.
    assert 12 <= await left(store, quick) <= 12 + (time.monotonic() - began)
    assert await left(store, NEVER_REFILLED) == 2
    assert (await asyncio.to_thread(throttlex_service.check, KEY)).allowed


async def test_two_limits_of_one_key_at_once(store: MySQLStore) -> None:
    """Two policies, or two looks at the table: each is decided by its own, none is lost."""
    limits = [SLOW, LOG, Limit(1, 90_000_000, 50, scope=scope_of("other")), NEVER_REFILLED] * 5
    verdicts = await asyncio.gather(*(take(store, limit) for limit in limits))
    assert all(verdict.allowed for verdict in verdicts)
    assert await left(store, LOG) == 5
    # At the smallest capacity there were 50 left, and five took from those at the least.
    assert 50 - 15 <= await left(store, NEVER_REFILLED) <= 50 - 5


async def test_two_stores_and_the_service_share_one_bucket(
    mariadb: MariaDB, store: MySQLStore, throttlex_service: Service
) -> None:
    """All at the same time, exactly one bucket is spent."""
    throttlex_service.put_policy(KEY, TOKEN_BUCKET, 100)
    async with opened(mariadb.url) as other:
        ours = asyncio.gather(
            *(take(one, NEVER_REFILLED) for one in (store, other) for _ in range(60))
        )
        theirs = await asyncio.gather(
            *(asyncio.to_thread(throttlex_service.check, KEY) for _ in range(10))
        )
        passed = [*(one.allowed for one in await ours), *(one.allowed for one in theirs)]
    assert sum(passed) == 100


async def test_nothing_passes_a_capacity_of_zero(
    store: MySQLStore, throttlex_service: Service
) -> None:
    """The tokens of the key are gone, as they are to the service."""
    await take(store, SLOW)
    none = limit_of(Numbers(TOKEN_BUCKET, 0), SCOPE)
    verdict = await take(store, none)
    assert (verdict.allowed, verdict.retry_after_us) == (False, NEVER)
    assert (await take(store, none, "new")).retry_after_us == NEVER
    assert await left(store, NEVER_REFILLED) == 0


# The table of policies.


@contextlib.asynccontextmanager
async def reading(mariadb: MariaDB) -> AsyncIterator[KeyOverrides]:
    """A book that is kept as the table is."""
    book = KeyOverrides(identity)
    reader = PolicyReader(mariadb.url, book, refresh_s=0.02)
    await reader.start()
    try:
        yield book
    finally:
        await reader.aclose()


async def test_a_book_is_as_the_table_is(mariadb: MariaDB, throttlex_service: Service) -> None:
    """What is made, changed or deleted there is so here, whichever the case of its key."""
    throttlex_service.put_policy("Ann", TOKEN_BUCKET, 5, 2)
    async with reading(mariadb) as book:
        assert book.find("ann") == Numbers(TOKEN_BUCKET, 5, Fraction(2), 60)
        throttlex_service.put_policy("ann", SLIDING_WINDOW, 7, window_s=9)
        throttlex_service.put_policy("Zoë%", TOKEN_BUCKET, 1)
        await until(lambda: book.find("ANN") == Numbers(SLIDING_WINDOW, 7, Fraction(0), 9))
        assert book.find(identity("Zoë%")) is not None
        throttlex_service.delete_policy("Ann")
        await until(lambda: book.find("Ann") is None)
        assert len(book) == 1


@pytest.mark.parametrize(
    ("collation", "is_found"),
    [("general_ci", True), ("0900_ai_ci" if MYSQLD else "general_nopad_ci", False)],
)
async def test_blanks_at_the_end_of_a_key_mean_what_they_mean_to_its_table(
    mariadb: MariaDB, throttlex_service: Service, collation: str, is_found: bool
) -> None:
    """ThrottleX finds the policy of a key that has none where the table takes them for nothing."""
    mariadb.sql(
        "ALTER TABLE throttlex_policy"
        f" MODIFY policy_key VARCHAR(255) COLLATE utf8mb4_{collation} NOT NULL"
    )
    throttlex_service.put_policy("ann  ", TOKEN_BUCKET, 5)
    async with reading(mariadb) as book:
        await until(lambda: len(book) == 1)
        assert (book.find("ann") is not None) == is_found


async def test_two_policies_that_change_places(
    mariadb: MariaDB, throttlex_service: Service
) -> None:
    """Sums of the rows alone would be what they were."""
    throttlex_service.put_policy("one", TOKEN_BUCKET, 10)
    throttlex_service.put_policy("two", TOKEN_BUCKET, 20)
    async with reading(mariadb) as book:
        mariadb.sql("UPDATE throttlex_policy SET capacity=30 - capacity")
        await until(lambda: book.find("one") == Numbers(TOKEN_BUCKET, 20, Fraction(0), 60))


async def test_rows_that_mean_nothing_are_told_once(
    mariadb: MariaDB, throttlex_service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """By their number, for their key may be a secret; the others hold."""
    mariadb.sql("ALTER TABLE throttlex_policy AUTO_INCREMENT=500")
    throttlex_service.put_policy("s3cret", "LEAKY", 5)
    throttlex_service.put_policy("negative", TOKEN_BUCKET, -5)
    throttlex_service.put_policy("nobody", TOKEN_BUCKET, 5)
    # A table that was made by hand may let that in.
    mariadb.sql(
        "ALTER TABLE throttlex_policy MODIFY policy_key VARCHAR(255);"
        "UPDATE throttlex_policy SET policy_key=NULL WHERE policy_key='nobody'"
    )
    throttlex_service.put_policy("good", TOKEN_BUCKET, 5)
    with caplog.at_level(logging.ERROR):
        async with reading(mariadb) as book:
            assert len(book) == 1
            throttlex_service.put_policy("better", TOKEN_BUCKET, 5)
            await until(lambda: len(book) == 2)
    kinds = f"{TOKEN_BUCKET}, {SLIDING_WINDOW}"
    assert caplog.messages == [
        f"row 500 of throttlex_policy is ignored: the type 'LEAKY' is not one of {kinds}",
        "row 501 of throttlex_policy is ignored: a capacity of -5 is negative",
        "row 502 of throttlex_policy is ignored: its key is not text",
    ]


async def test_a_table_that_is_all_wrong_is_told_in_a_few_lines(
    mariadb: MariaDB, throttlex_service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows one by one would hold up every request while they are written."""
    rows = ",".join(f"({n}, 'k{n}', 'token_bucket', 1, 1, 1)" for n in range(1, 1_501))
    mariadb.sql(
        "INSERT INTO throttlex_policy"
        f" (id, policy_key, type, capacity, refill_rate, window_seconds) VALUES {rows}"
    )
    with caplog.at_level(logging.ERROR):
        async with reading(mariadb):
            await until(lambda: bool(caplog.messages))
    assert caplog.messages[19].startswith("row 20 of throttlex_policy is ignored: ")
    assert caplog.messages[20:] == ["rows of throttlex_policy that are ignored too: 1480"]


async def test_many_policies(
    mariadb: MariaDB, throttlex_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read in pieces; those beyond what is kept are left out."""
    rows = ",".join(f"('k{n}', 'TOKEN_BUCKET', {n}, 1, 1)" for n in range(1, 3_501))
    mariadb.sql(
        "INSERT INTO throttlex_policy (policy_key, type, capacity, refill_rate, window_seconds)"
        f" VALUES {rows}"
    )
    async with reading(mariadb) as book:
        await until(lambda: len(book) == 3_500)
        assert book.find("k3500") == Numbers(TOKEN_BUCKET, 3_500, Fraction(1), 1)
        monkeypatch.setattr(mysql_policies, "MAX_POLICIES", 2_000)
        throttlex_service.delete_policy("k1")
        await until(lambda: len(book) == 2_000)


async def test_policies_outlive_their_database(
    mariadb: MariaDB, throttlex_service: Service
) -> None:
    """While it is away the last ones hold, and it is read again when it is back."""
    throttlex_service.put_policy("ann", TOKEN_BUCKET, 5)
    async with reading(mariadb) as book:
        mariadb.stop()
        await asyncio.sleep(0.1)
        assert book.find("ann") is not None
        mariadb.start()
        throttlex_service.put_policy("ann", TOKEN_BUCKET, 6)
        await until(lambda: book.find("ann") == Numbers(TOKEN_BUCKET, 6, Fraction(0), 60))


async def test_a_table_that_vanishes_is_made_again(
    mariadb: MariaDB, throttlex_service: Service
) -> None:
    """Without the table there are no policies; the next ones are read."""
    throttlex_service.put_policy("ann", TOKEN_BUCKET, 5)
    async with reading(mariadb) as book:
        mariadb.sql("DROP TABLE throttlex_policy")
        await until(lambda: not len(book))
        throttlex_service.put_policy("ann", TOKEN_BUCKET, 6)
        await until(lambda: book.find("ann") == Numbers(TOKEN_BUCKET, 6, Fraction(0), 60))
