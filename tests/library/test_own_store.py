"""Stores that others bring: found by their scheme, and the example that makes one."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway import Limiter, Policy
from gateway.base.clock import ManualClock
from gateway.base.errors import ConfigError, StoreError
from gateway.config.checking.check import check_text
from gateway.config.explaining.explain import explain
from gateway.config.explaining.render import render
from gateway.config.explaining.schema import json_schema
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, Store
from gateway.stores.kinds import STORES
from gateway.stores.memory.store import MemoryStore
from gateway.stores.opening import open_store
from gateway.stores.urls import StoreUrl, UrlParts, any_text, check_options

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "own-store" / "ratio_store.py"
WINDOW_US: Final = 100
LIMIT: Final = Limit(4, WINDOW_US, 4, "sliding_window_log", max_wait_us=150, scope="p/ip")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ratio_store", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ratio_store"] = module
    spec.loader.exec_module(module)
    return module


EXAMPLE_MODULE: Final[Any] = _load()


@pytest.fixture
def offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Offers entry points, as an installed distribution does."""

    def offer(**entries: str) -> None:
        info = tmp_path / "theirs-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[sluice.stores]", *lines, ""]))
        monkeypatch.syspath_prepend(str(tmp_path))

    return offer


def test_a_store_is_found_by_its_scheme(offers: Any, tmp_path: Path) -> None:
    """In the library and in a gateway's configuration, where it is explained by its URL."""
    offers(sqlite="ratio_store:SqliteStore")
    url = f"sqlite://{tmp_path}/counts.db"
    policy = Policy("pay", "2/h", algorithm="sliding_window_log")

    limiter = Limiter(policy, store={"url": url, "deadline": "5s"})

    async def once() -> list[bool]:
        async with limiter:
            return [(await limiter.acquire("alice")).allowed for _ in range(2)]

    assert asyncio.run(once()) == [True, True]
    assert asyncio.run(once()) == [False, False]
    text = f"store: {url}\nroutes: {{ /**: {{ upstream: http://127.0.0.1:9000, limit: 1/s }} }}"
    sentences = explain(check_text(text).config)
    assert any(f"Counts are kept in the SQLite file {tmp_path}/" in each for each in sentences)


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("sqlite://", "names no file", "such as sqlite:///var/lib/counts.db"),
        ("sqlite://host", "names no file", "such as sqlite:///var/lib/counts.db"),
        ("sqlite:///a.db?mode=ro", "'mode' is not an option of this store", "options: none"),
        ("sqlite:///a.db#1", "has a fragment", "a # is written %23"),
        ("sqlite:///$COUNTS", "a variable that is not replaced", "write ${COUNTS}"),
    ],
)
def test_the_url_of_a_store_of_others_is_checked(
    offers: Any, url: str, message: str, hint: str
) -> None:
    """Like the gateway's own: by the store's rules, at its place in the file and with a hint."""
    offers(sqlite="ratio_store:SqliteStore")
    text = f"store:\n  url: {url}\nroutes: {{ /**: {{ upstream: http://a, limit: 1/s }} }}"

    with pytest.raises(ConfigError) as caught:
        check_text(text)

    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (2, "store.url")
    assert message in problem.message
    assert hint in problem.hint


def test_what_a_store_of_others_calls_secret_is_not_shown(
    offers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the URL that is logged, in its explanation, and in a line of the file."""

    class Urls(EXAMPLE_MODULE.SqliteUrls):  # type: ignore[misc]
        secrets = frozenset({"ticket"})

        def read(self, url: UrlParts) -> StoreUrl:
            check_options(url.options, {"ticket": any_text()})
            return StoreUrl("vault", "/counts", 0, url.options)

    theirs = SimpleNamespace(Vault=SimpleNamespace(urls=Urls()))
    monkeypatch.setitem(sys.modules, "theirs", cast("ModuleType", theirs))
    offers(vault="theirs:Vault")
    rest = "routes: { /**: { upstream: http://a, limit: 1/s } }"

    config = check_text(f"store: vault:///counts?ticket=s3cret\n{rest}").config
    shown = [config.store.redacted_url, *explain(config)]
    with pytest.raises(ConfigError) as caught:
        check_text(f"store: vault:///counts?ticket=s3cret&colour=blue\n{rest}")
    shown.append(render(caught.value.problems))

    assert "vault:///counts?ticket=***" in shown[0]
    assert "'colour' is not an option of this store" in shown[-1]
    assert "s3cret" not in "\n".join(shown)


def test_the_schema_lets_the_urls_of_stores_of_others_pass(offers: Any) -> None:
    """An editor marks only schemes that no store has."""
    offers(sqlite="ratio_store:SqliteStore")
    schema = Draft202012Validator(json_schema())

    def passes(url: str) -> bool:
        route = {"upstream": "http://a", "limit": "1/s"}
        return schema.is_valid({"store": url, "routes": {"/**": route}})

    assert passes("sqlite:///var/lib/counts.db")
    assert passes("redis://127.0.0.1")
    assert not passes("zebra://x")


def test_what_cannot_be_used_is_a_problem_of_the_configuration(
    offers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown scheme, a class that cannot be loaded, one that is not a store, a bad URL."""
    offers(
        sqlite="ratio_store:SqliteStore",
        gone="no_such_module:Store",
        odd="gateway.base.clock:ManualClock.advance",
        wrong="theirs:not_a_store",
        memory="builtins:dict",
    )

    theirs = SimpleNamespace(not_a_store=lambda url, **_: url)
    monkeypatch.setitem(sys.modules, "theirs", cast("ModuleType", theirs))

    def complaint(url: str) -> str:
        with pytest.raises(ConfigError) as caught:
            open_store(url, domain="sluice", deadline_us=1)
        return str(caught.value)

    assert "no store has the scheme 'sqlit' (did you mean sqlite://?)" in complaint("sqlit://x")
    assert "known: memory, redis" in complaint("zebra://x")
    assert "no_such_module:Store, the store for gone://, cannot be loaded: ModuleNotFou" in (
        complaint("gone://x")
    )
    assert "names no file" in complaint("sqlite://")
    assert "is not a Store" in complaint("wrong://x")
    assert isinstance(open_store("memory://", domain="", deadline_us=1), MemoryStore)
    with pytest.raises(ConfigError, match="not a kind of store"):
        check_text("store: zebra://x\nroutes: { /**: { upstream: http://a, limit: 1/s } }")


def test_every_scheme_of_ours_leads_to_something() -> None:
    """The table names modules and classes that are there."""
    for scheme in STORES:
        path = {"mysql": "counts", "redis+sentinel": "main", "rediss+sentinel": "main"}.get(
            scheme, ""
        )
        place = {"unix": "/run/redis.sock"}.get(scheme, f"127.0.0.1/{path}")
        store = open_store(f"{scheme}://{place}", domain="sluice", deadline_us=1_000)
        assert isinstance(store, Store), scheme


def in_memory() -> Any:
    """A storage that is gone with its store."""
    return EXAMPLE_MODULE.SqliteStorage(":memory:")


STEPS: Final = st.lists(
    st.tuples(
        st.integers(0, WINDOW_US // 2),  # time that passes before it
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),  # cost
        st.sampled_from([0, 40, 1_000]),  # patience
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(STEPS)
def test_four_verbs_decide_as_the_log_does(steps: list[tuple[int, str, int, int]]) -> None:
    """Counting alone gives the verdicts of the pure function: turns, waits and all."""
    clock = ManualClock(1_000_000)
    store = EXAMPLE_MODULE.FourVerbStore(in_memory, "sluice", clock)
    model = MemoryStore(clock=clock)
    other = replace(LIMIT, count=2, burst=2, max_wait_us=0, count_refused=True, scope="p/all")

    async def told() -> None:
        for passed_us, key, cost, patience_us in steps:
            clock.advance(us=passed_us)
            limits, keys = ((LIMIT, other), (key, "all")) if cost < 3 else ((LIMIT,), (key,))
            ask = Ask(limits, keys, cost, patience_us)
            (found,) = await store.decide([ask])
            expected = model.decide_now(ask)
            assert found[:3] == expected[:3]
            for one, two in zip(found.decisions, expected.decisions, strict=True):
                assert one[:6] == two[:6]
            await store.give_back(ask, found)
            assert await store.renew(ask, found)
        await store.aclose()
        with pytest.raises(StoreError):
            await store.decide([])

    asyncio.run(told())


def test_flush_forgets_everything(tmp_path: Path) -> None:
    """For an operator or a test that starts over; and drop returns how many."""
    with EXAMPLE_MODULE.SqliteStorage(str(tmp_path / "counts.db")) as storage:
        storage.add("a", 5, 10)
        storage.add("a", 6, 10)
        assert (storage.count("a", 5), storage.drop("a", 6), storage.count("a", 9)) == (1, 1, 1)
        storage.flush()
        assert storage.count("a", 9) == 0
    storage.close()


def test_what_the_storage_cannot_do_is_an_error_of_the_store(tmp_path: Path) -> None:
    """A file that cannot be opened, an unsupported algorithm: `on_store_error` applies."""
    store = EXAMPLE_MODULE.FourVerbStore(in_memory, "sluice")

    async def told() -> None:
        with pytest.raises(StoreError, match="no token_bucket"):
            await store.decide([Ask((Limit(1, 1, 1),), ("k",), 1, 0)])
        await store.aclose()
        lost = EXAMPLE_MODULE.SqliteStore(f"sqlite://{tmp_path}/no/file", domain="", deadline_us=1)
        with pytest.raises(StoreError, match="unable to open"):
            await lost.decide([Ask((LIMIT,), ("k",), 1, 0)])
        await lost.aclose()

    asyncio.run(told())
