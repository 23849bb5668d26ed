"""The Lua scripts say and keep exactly what the pure functions say and keep.

The scripts run on a real server and are told the time, so that both see the same. Every
sequence mixes odd rates, bursts, queues, costs, batches, limits that change, clocks that go
back, and undoing; after every call all fields of the decisions and all states are compared,
and every key must have a time to live that is long enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limits.decision import Decision, Verdict
from gateway.limits.rate import NS_PER_US, Limit
from gateway.stores.base import Ask
from gateway.stores.redis.script import (
    key_prefix,
    store_key,
)
from tests.servers import RedisServer
from tests.stores.twins import DOMAIN, LONG_MS, SCOPES, START_US, Originals, Twins, check_sequence


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A client of a server of this module's own."""
    server = RedisServer(tmp_path_factory.mktemp("redis-twins"))
    server.start()
    with server.client() as connected:
        yield connected
    server.stop()


@settings(max_examples=150)
@given(data=st.data())
def test_the_scripts_equal_their_originals(client: redis.Redis, data: st.DataObject) -> None:
    """Field by field and state by state, whatever the sequence."""
    check_sequence(client, data)


BUCKETS = [
    replace(limit, scope="any")
    for limits in SCOPES.values()
    for limit in limits
    if limit.algorithm == "token_bucket"
]


@st.composite
def near(draw: st.DrawFn, limit: Limit) -> int:
    """A time in nanoseconds, before or after now by no more than matters to a bucket."""
    most = limit.tolerance_ns + limit.max_wait_us * NS_PER_US + 2 * limit.interval_ns
    edges = (0, limit.tolerance_ns, most, limit.interval_ns)
    offset = draw(st.one_of(st.integers(-most, most), st.sampled_from(edges)))
    # No server's clock shows a time before 1970.
    return max(START_US * NS_PER_US + offset + draw(st.integers(-1, 1)), NS_PER_US)


@settings(max_examples=300)
@given(data=st.data())
def test_one_step_from_any_bucket(client: redis.Redis, data: st.DataObject) -> None:
    """One decision, and one undoing of anything, from every state that a key may be in."""
    limit = data.draw(st.sampled_from(BUCKETS))
    twins, originals = Twins(client), Originals({})
    state = data.draw(near(limit))
    originals.states[limit.scope, "k"] = state
    client.set(store_key(key_prefix(DOMAIN, limit), "k"), f"{state:04}", px=LONG_MS)
    cost = data.draw(st.integers(1, limit.burst + 1))
    ask = Ask((limit,), ("k",), cost, data.draw(st.sampled_from((0, 2, 10**15))))
    is_undoing = data.draw(st.booleans(), label="give back")
    if is_undoing:
        # As of the last in the queue or nearly so, of one that went lately, of any.
        last = max(state - limit.tolerance_ns, NS_PER_US)
        lately = st.integers(0, cost * limit.interval_ns).map(
            lambda ns: max(START_US * NS_PER_US - ns, 0)
        )
        receipt = data.draw(
            st.one_of(st.just(last), st.integers(last - 2, last + 2), lately, near(limit))
        )
        verdict = Verdict(True, 0, 0, [Decision(True, 0, 0, limit.burst, 0, 0, receipt)])
        originals.give_back(ask, verdict, START_US)
        twins.give_back(ask, verdict, START_US)
    else:
        expected = originals.decide(ask, START_US)
        (answered,) = twins.decide([ask], START_US)
        assert answered[:3] == expected[:3]
        assert list(answered.decisions) == list(expected.decisions)
    originals.agree(limit, "k", twins.state(limit, "k"), START_US)
