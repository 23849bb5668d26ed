"""Random requests against a small model of what they should come to, in memory and on Redis.

Limits are so slow that nothing comes back while a program runs, so the model only counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.config.models.gateway import GatewayConfig
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store
from gateway.systems.envoy.messages import OK, OVER_LIMIT, Descriptor, EnvoyStatus
from gateway.wiring.limiter import store_of
from tests.envoy_rls import config_of, serving, still_clock
from tests.servers import RedisServer

RULES: Final = """
    { match: { a: "*" }, limit: 4/24h }
    { match: { a: x }, limit: 2/24h }
    { match: { b: y* }, limit: 3/24h, shared: true }
    { match: { b: "*", a: "*" }, limit: 5/24h, shared: b }
    { match: { b: z }, limit: 1/24h, shadow: true }
    { match: { c: "*" }, limit: 2/24h, name: c }
    { match: { c: "*", a: x }, limit: 3/24h, replaces: c }
    { match: { b: foe }, refuse: true }
    { match: { b: friend }, unlimited: true }
    { match: { q: "*" }, limit: 2/24h, quota: true }
    { match: { q: z }, refuse: true, quota: true }
"""


Name = tuple[int, tuple[str, ...]]


class Held(NamedTuple):
    """What the model knows of a rule: its number, how many, and what it counts by."""

    rule: int
    most: int
    key: tuple[str, ...] = ()
    is_shadow: bool = False
    is_quota: bool = False
    name: str = ""
    replaces: str = ""

    @property
    def counted(self) -> Name:
        """What tells its count from all others."""
        return self.rule, self.key


def held(entries: tuple[tuple[str, str], ...]) -> Held | None:
    """The rule of a descriptor, by hand."""
    keys = tuple(key for key, _ in entries)
    values = tuple(value for _, value in entries)
    first = values[0]
    if keys in {("a",), ("q",)}:
        known = {("a", "x"): Held(1, 2), ("q", "z"): Held(10, 0, is_quota=True)}
        usual = {"a": Held(0, 4, values), "q": Held(9, 2, values, is_quota=True)}
        return known.get((keys[0], first), usual[keys[0]])
    if keys == ("c",):
        return Held(5, 2, values, name="c")
    if keys == ("c", "a") and values[1] == "x":
        return Held(6, 3, (first,), replaces="c")
    # From a value that is written there is no way to the rule for any value.
    if keys == ("b", "a") and first not in ("foe", "friend", "z") and first[0] != "y":
        return Held(3, 5, (values[1],))
    if keys == ("b",):
        named = {"foe": Held(7, 0), "friend": Held(8, -1), "z": Held(4, 1, is_shadow=True)}
        return named.get(first, Held(2, 3) if first[0] == "y" else None)
    return None


class Model:
    """What is spent of each count."""

    def __init__(self) -> None:
        self._spent: Counter[Name] = Counter()

    def ask(self, descriptors: list[Descriptor], hits: int) -> tuple[int, list[EnvoyStatus | None]]:
        """The code and the statuses of a request; None where more than one thing may be said."""
        found = [held(one.entries) for one in descriptors]
        replaced = {one.replaces for one in found if one is not None and one.replaces}
        found = [None if one is None or one.name in replaced else one for one in found]
        costs = [(hits or 1) if one.hits is None else one.hits for one in descriptors]
        wanted: Counter[Name] = Counter()
        asked: Counter[Name] = Counter()
        limits: dict[Name, int] = {}
        quotas = [
            (one, cost)
            for one, cost in zip(found, costs, strict=True)
            if one is not None and one.is_quota
        ]
        asked.update(one.counted for one, _ in quotas)
        looks_only = bool(quotas) and not any(one.most for one, _ in quotas)
        for one, cost in zip(found, costs, strict=True):
            if one is not None and one.is_quota:
                continue
            if one is not None and not one.most:
                looks_only = True
            elif one is not None and one.most > 0 and not one.is_shadow:
                asked[one.counted] += 1
                wanted[one.counted] += cost
                limits[one.counted] = one.most
        if all(one.hits for one in descriptors):
            return self._debit(found, costs, looks_only=looks_only)
        taken = self._of_quotas(quotas)
        is_refused = (
            looks_only
            or taken is None
            or any(self._spent[name] + cost > limits[name] for name, cost in wanted.items())
        )
        statuses = [
            None
            if one is None
            else self._status(one, 0 if looks_only and not one.is_shadow else cost, is_refused)
            for one, cost in zip(found, costs, strict=True)
        ]
        if not is_refused:
            self._spent += wanted + (taken or Counter())
        unclear = {name for name, times in asked.items() if times > 1}
        return OVER_LIMIT if is_refused else OK, [
            None if one is not None and one.counted in unclear else status
            for one, status in zip(found, statuses, strict=True)
        ]

    def _debit(
        self, found: list[Held | None], costs: list[int], *, looks_only: bool
    ) -> tuple[int, list[EnvoyStatus | None]]:
        """All say what they cost, so it was used already; a look if something refuses always."""
        statuses: list[EnvoyStatus | None] = []
        is_refused, quotas, over = looks_only, 0, 0
        for one, cost in zip(found, costs, strict=True):
            if one is None or one.most <= 0:
                statuses.append(None if one is None else self._status(one, 0, is_refused))
                quotas += one is not None and one.is_quota
                over += one is not None and one.is_quota
                continue
            name, spent = one.counted, self._spent[one.counted]
            if one.is_shadow or not looks_only:
                self._spent[name] = spent = max(spent, min(spent + cost, 2 * one.most))
            is_over = spent > one.most
            quotas += one.is_quota
            over += one.is_quota and is_over
            is_refused = is_refused or (is_over and not one.is_quota and not one.is_shadow)
            code = OVER_LIMIT if is_over and not one.is_shadow else OK
            statuses.append(EnvoyStatus(code, remaining=max(one.most - spent, 0)))
        is_refused = is_refused or 0 < quotas == over
        return OVER_LIMIT if is_refused else OK, statuses

    def _of_quotas(self, quotas: list[tuple[Held, int]]) -> Counter[Name] | None:
        """What those take that have enough; None if there are some and none of them has."""
        taken: Counter[Name] = Counter()
        is_enough = not quotas
        for one, cost in quotas:
            left = one.most - self._spent[one.counted] - taken[one.counted]
            if one.most and cost <= left:
                taken[one.counted] += cost
                is_enough = True
        return taken if is_enough else None

    def _status(self, one: Held, cost: int, is_refused: bool) -> EnvoyStatus:
        if one.most <= 0:
            return EnvoyStatus(OK, remaining=2**32 - 1) if one.most else EnvoyStatus(OVER_LIMIT)
        left = one.most - self._spent[one.counted]
        passes = cost <= left
        if one.is_shadow:
            self._spent[one.counted] += cost if passes else 0
            return EnvoyStatus(OK, remaining=left - cost if passes else max(left, 0))
        if not passes:
            return EnvoyStatus(OVER_LIMIT, remaining=max(left, 0))
        return EnvoyStatus(OK, remaining=left if is_refused else left - cost)


ENTRIES: Final = st.lists(
    st.tuples(st.sampled_from("abcq"), st.sampled_from(["x", "y1", "y2", "z", "foe", "friend"])),
    min_size=1,
    max_size=2,
).map(tuple)
DESCRIPTORS: Final = st.builds(
    Descriptor, ENTRIES, st.none(), st.none() | st.integers(0, 4), st.just(False)
)
REQUESTS: Final = st.tuples(st.lists(DESCRIPTORS, min_size=1, max_size=4), st.integers(0, 3))
PROGRAMS: Final = st.lists(REQUESTS, min_size=1, max_size=12)
Program = list[tuple[list[Descriptor], int]]

IN_MEMORY: Final = config_of(RULES)


async def _run(
    program: Program, config: GatewayConfig, where: ManualClock | Callable[[], Store]
) -> None:
    model = Model()
    async with serving(config, where) as service:
        for descriptors, hits in program:
            reply = await service.ask(*descriptors, hits=hits)
            code, statuses = model.ask(descriptors, hits)
            assert reply.code == code
            for said, wanted in zip(reply.statuses, statuses, strict=True):
                if wanted is not None:
                    assert (said.code, said.remaining) == (wanted.code, wanted.remaining)


@settings(max_examples=200)
@given(PROGRAMS)
def test_in_memory_requests_come_to_what_the_model_says(program: Program) -> None:
    """Codes, statuses, and what is left."""
    asyncio.run(_run(program, IN_MEMORY, still_clock()))


@pytest.fixture(scope="module")
def redis_of_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for all programs, each of which begins with nothing in it."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROGRAMS)
def test_on_redis_requests_come_to_what_the_model_says(
    redis_of_programs: RedisServer, program: Program
) -> None:
    """The same, though what is given back is given back later there."""
    redis_of_programs.client().flushall()
    store = f"store: {{ url: '{redis_of_programs.url}', deadline: 5s }}"
    config = config_of(RULES, more=store)
    asyncio.run(_run(program, config, store_of(config, GatewayMetrics())))
