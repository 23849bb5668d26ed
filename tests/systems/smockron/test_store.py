"""The gatekeeper of Smockron: what it decides from memory, and what it tells the master."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.base.errors import ConfigError
from gateway.base.install_hint import install_hint
from gateway.limits.decision import NEVER, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, DescribedAsk, ImmediateStore
from gateway.stores.opening import find_store
from gateway.systems.smockron import store as smockron
from gateway.systems.smockron.codec import DelayUntil, write_control
from gateway.systems.smockron.store import SmockronStore, plain_of
from gateway.systems.smockron.zeromq import SENT_MAX
from tests.processes import free_pair
from tests.servers import until
from tests.smockron import TestMaster, master

SECOND_US: Final = 1_000_000
START_US: Final = 1_800_000_000_000_000
START_MS: Final = START_US // 1000
LIMIT: Final = Limit(1, SECOND_US, 10, "paced_history", 5 * SECOND_US, scope="default/ip")
API: Final = replace(LIMIT, count=2, scope="api/ip")
UNBOUNDED_US: Final = 2**62


def ask(key: str = "203.0.113.7", *limits: Limit, cost: int = 1) -> Ask:
    """A question about one request."""
    limits = limits or (LIMIT,)
    return Ask(limits, (key,) * len(limits), cost, UNBOUNDED_US)


class Run:
    """A gatekeeper, its master, and the time."""

    def __init__(self, store: SmockronStore, peer: TestMaster, clock: ManualClock) -> None:
        self.store = store
        self.master = peer
        self.clock = clock
        self._marks = 0

    async def hold(self, identifier: str, after_us: int, domain: str = "default") -> None:
        """Let the master hold somebody, and return when that is known."""
        await self.master.hold(domain, identifier, (self.clock() + after_us) // 1000)
        await self.heard()

    async def heard(self) -> None:
        """Return when all that the master has said is known."""
        self._marks += 1
        mark = f"mark-{self._marks}"
        await self.master.hold("default", mark, (self.clock() + 10 * SECOND_US) // 1000)
        await until(lambda: self.store.decide_now(ask(mark, cost=0)).decisions[0].reset_us > 0)


@asynccontextmanager
async def running(options: str = "", **policies: list[Limit]) -> AsyncIterator[Run]:
    """A gatekeeper whose connections stand."""
    port = free_pair()
    clock = ManualClock(START_US)
    store = SmockronStore(f"smockron://127.0.0.1:{port}{options}", clock=clock)
    expected = policies or {"default": [LIMIT], "api": [API]}
    store.expect(expected)
    async with master(port) as peer:
        await store.start()
        try:
            topics = {await peer.subscribed() for _ in range(len(store.domains))}
            assert topics == {name.encode() + b"\0" for name in store.domains}
            run = Run(store, peer, clock)
            # What is told before the other connection stands is lost.
            async with asyncio.timeout(15):
                while await peer.is_silent(0.02):
                    store.decide_now(ask("warm"))
                    await asyncio.sleep(0)
            # From now on nothing is lost, and all that was said before comes before this.
            store.decide_now(ask("begin"))
            while (await peer.hear())[2] != b"begin":
                pass
            yield run
        finally:
            await store.aclose()


async def test_without_a_word_everything_goes_on_and_is_reported() -> None:
    """Six frames, byte for byte."""
    async with running() as run:
        introduced = DescribedAsk(*ask())
        introduced.about = b"GET shop curl/8"
        verdict = run.store.decide_now(introduced)
        assert verdict.allowed
        assert verdict.wait_us == 0
        assert await run.master.hear() == [
            *(b"default\0", b"ACCEPTED", b"203.0.113.7", b"%d" % START_MS, b"", b"GET shop curl/8")
        ]


async def test_who_is_held_waits_and_each_has_a_turn_of_its_own() -> None:
    """One by one, at the rate; the time that is reported is that of the turn."""
    async with running() as run:
        await run.hold("203.0.113.7", 2 * SECOND_US)
        waits = [run.store.decide_now(ask()).wait_us for _ in range(4)]
        assert waits == [number * SECOND_US for number in (2, 3, 4, 5)]
        for number in (2, 3, 4, 5):
            assert await run.master.hear() == [
                *(b"default\0", b"DELAYED", b"203.0.113.7", b"%d" % START_MS),
                *(b"%d" % (START_MS + number * 1000), b""),
            ]
        assert run.store.decide_now(ask("203.0.113.8")).wait_us == 0


async def test_exactly_the_longest_wait_is_a_wait() -> None:
    """And a microsecond more is a refusal, with the time until it passes."""
    async with running() as run:
        await run.hold("k", 5 * SECOND_US)
        run.clock.advance(us=-1)
        verdict = run.store.decide_now(ask("k"))
        assert (verdict.allowed, verdict.retry_after_us) == (False, 5 * SECOND_US + 1)
        run.clock.advance(us=1)
        assert run.store.decide_now(ask("k")).wait_us == 5 * SECOND_US


async def test_a_limit_without_a_queue_refuses_at_once() -> None:
    """For every held client."""
    async with running() as run:
        await run.hold("k", SECOND_US)
        impatient = replace(LIMIT, max_wait_us=0)
        assert not run.store.decide_now(ask("k", impatient)).allowed
        run.clock.advance(us=SECOND_US)
        assert run.store.decide_now(ask("k", impatient)).allowed


async def test_times_roll_forward_only() -> None:
    """A message that comes late takes nothing back."""
    async with running() as run:
        await run.hold("k", 4 * SECOND_US)
        await run.hold("k", 2 * SECOND_US)
        assert run.store.decide_now(ask("k")).wait_us == 4 * SECOND_US


async def test_a_clock_that_is_set_back_holds_nobody_for_longer() -> None:
    """Earlier messages are not later times; new messages apply from then on."""
    async with running() as run:
        for identifier in ("j", "k", "l"):
            await run.hold(identifier, 4 * SECOND_US)
        assert run.store.decide_now(ask("j")).wait_us == 4 * SECOND_US
        run.clock.advance(seconds=-3600)
        assert run.store.decide_now(ask("j")).wait_us == 0
        assert run.store.decide_now(ask("k")).wait_us == 0
        await run.hold("l", 2 * SECOND_US)
        assert run.store.decide_now(ask("l")).wait_us == 2 * SECOND_US


async def test_other_messages_change_nothing() -> None:
    """Commands and domains that are not known, times past or absurd, and what is no message."""
    async with running() as run:
        for frames in (
            (b"default\0", b"RESYNCSTART", b"k", b"%d" % (START_MS + 1000)),
            (b"default\0", b"DELAY_UNTIL", b"k", b"%d" % (START_MS - 1000)),
            (b"default\0", b"DELAY_UNTIL", b"k", b"%d" % (START_MS + 10**11)),
            (b"default\0", b"DELAY_UNTIL", b"k"),
            (b"default\0", b"DELAY_UNTIL", b"k", b"never"),
            (b"default\0",),
            (b"default2\0", b"DELAY_UNTIL", b"k", b"%d" % (START_MS + 1000)),
        ):
            await run.master.send(*frames)
        await run.heard()
        assert run.store.decide_now(ask("k")).wait_us == 0
        told = run.store.messages
        assert {what: told[what] for what in told if what[0] in {"control", "DELAY_UNTIL"}} == {
            ("control", "unknown"): 1,
            ("control", "malformed"): 3,
            ("DELAY_UNTIL", "past"): 1,
            ("DELAY_UNTIL", "too_far"): 1,
            ("DELAY_UNTIL", "heard"): 1,
        }


async def test_a_slow_limit_is_believed_before_its_first_request() -> None:
    """The master may hold a client for as long as the limit allows, on any report."""
    slow = replace(LIMIT, period_us=3600 * SECOND_US)
    async with running(default=[slow]) as run:
        await run.hold("k", 3600 * SECOND_US)
        assert run.store.messages["DELAY_UNTIL", "too_far"] == 0
        verdict = run.store.decide_now(ask("k", slow))
        assert (verdict.allowed, verdict.retry_after_us) == (False, 3600 * SECOND_US)


async def test_what_is_reported_is_counted() -> None:
    """By its status; one without room while the master is unavailable, as dropped."""
    async with running() as run:
        told, before = run.store.messages, dict(run.store.messages)
        assert before["ACCEPTED", "sent"]
        await run.hold("later", SECOND_US)
        for key in ("now", "later"):
            assert run.store.decide_now(ask(key)).allowed
            await run.master.hear()
        await run.hold("never", 30 * SECOND_US)
        for _ in range(10):
            assert not run.store.decide_now(ask("never")).allowed
        await run.master.hear()
        assert told["ACCEPTED", "sent"] == before["ACCEPTED", "sent"] + 1
        assert (told["DELAYED", "sent"], told["REJECTED", "sent"]) == (1, 1)
        told.clear()
        run.master.close()
        await until(lambda: not run.store.is_ready)
        asked = 0
        # The other connection may be there for a moment yet, and take some.
        async with asyncio.timeout(20):
            while not told["ACCEPTED", "dropped"]:
                for _ in range(SENT_MAX + 500):
                    run.store.decide_now(ask())
                asked += SENT_MAX + 500
                await until(lambda: sum(told.values()) == asked)  # noqa: B023 - it is awaited
        assert told["ACCEPTED", "sent"] > SENT_MAX / 2


async def test_refusals_are_sampled() -> None:
    """One in ten is reported, unless another share is set."""
    for options, wanted in (("", 10), ("?rejected=0%", 0), ("?rejected=100%", 100)):
        async with running(options) as run:
            await run.hold("k", 30 * SECOND_US)
            for _ in range(100):
                assert not run.store.decide_now(ask("k")).allowed
            run.store.decide_now(ask("end"))
            heard = []
            while (frames := await run.master.hear())[2] != b"end":
                heard.append(frames)
            assert len(heard) == wanted
            expected = [b"default\0", b"REJECTED", b"k", b"%d" % START_MS, b"", b""]
            assert all(frames == expected for frames in heard)


async def test_a_turn_that_is_given_back_at_once_was_never_reported() -> None:
    """There was no room to wait: the master gets a refusal, and the next has the turn."""
    async with running("?rejected=100%") as run:
        await run.hold("k", SECOND_US)
        first = run.store.decide_now(ask("k"))
        run.store.give_back_now(ask("k"), first)
        assert (await run.master.hear())[1] == b"REJECTED"
        assert run.store.decide_now(ask("k")).wait_us == SECOND_US


async def test_a_turn_that_is_given_back_later_is_free() -> None:
    """The last one; those in between have been promised to others."""
    async with running() as run:
        await run.hold("k", SECOND_US)
        first, second = (run.store.decide_now(ask("k")) for _ in range(2))
        await run.master.hear()
        await run.master.hear()
        await run.store.give_back(ask("k"), first)
        assert run.store.decide_now(ask("k", cost=0)).decisions[0].reset_us == 3 * SECOND_US
        await run.store.give_back(ask("k"), second)
        assert run.store.decide_now(ask("k")).wait_us == 2 * SECOND_US


async def test_all_domains_of_a_request_or_none() -> None:
    """Where one refuses, the others give no turn; where one makes wait, that time is reported."""
    async with running("?rejected=100%") as run:
        await run.hold("k", SECOND_US)
        verdict = run.store.decide_now(ask("k", LIMIT, API))
        assert verdict.wait_us == SECOND_US
        heard = [await run.master.hear(), await run.master.hear()]
        turn = b"%d" % (START_MS + 1000)
        assert [frames[:2] for frames in heard] == [
            [b"default\0", b"DELAYED"],
            [b"api\0", b"DELAYED"],
        ]
        assert all(frames[4] == turn for frames in heard)
        await run.hold("k", 30 * SECOND_US, "api")
        assert not run.store.decide_now(ask("k", LIMIT, API)).allowed
        assert (await run.master.hear())[:2] == [b"api\0", b"REJECTED"]
        assert run.store.decide_now(ask("k")).wait_us == 2 * SECOND_US


async def test_several_limits_of_a_policy_are_one_domain() -> None:
    """A request is reported once, and turns are as far apart as the slowest wants."""
    fast, slow = LIMIT, replace(LIMIT, period_us=3 * SECOND_US, scope="default/ip#2")
    async with running(default=[LIMIT, replace(LIMIT, scope="default/ip#2")]) as run:
        run.store.decide_now(ask("k", fast, slow))
        run.store.decide_now(ask("end"))
        assert (await run.master.hear())[2] == b"k"
        assert (await run.master.hear())[2] == b"end"
        await run.hold("k", SECOND_US)
        waits = [run.store.decide_now(ask("k", fast, slow)).wait_us for _ in range(2)]
        assert waits == [SECOND_US, 4 * SECOND_US]


async def test_a_cost_is_so_many_requests() -> None:
    """Each of them is reported; what costs more than the burst never passes."""
    async with running() as run:
        run.store.decide_now(ask("k", cost=3))
        assert [(await run.master.hear())[2] for _ in range(3)] == [b"k"] * 3
        await run.hold("k", SECOND_US)
        assert run.store.decide_now(ask("k", cost=2)).wait_us == SECOND_US
        assert run.store.decide_now(ask("k")).wait_us == 3 * SECOND_US
        assert run.store.decide_now(ask("k", cost=11)).retry_after_us == NEVER


async def test_a_limit_that_nobody_expected_is_a_domain_too() -> None:
    """From its first request on."""
    late = replace(LIMIT, scope="late/ip")
    async with running() as run:
        run.store.decide_now(ask("k", late))
        assert (await run.master.hear())[0] == b"late\0"
        assert await run.master.subscribed() == b"late\0"
        await run.hold("k", SECOND_US, "late")
        assert run.store.decide_now(ask("k", late)).wait_us == SECOND_US


async def test_one_domain_for_all_limits_if_it_is_said() -> None:
    """Whatever the policy is called."""
    async with running("?domain=shop", default=[LIMIT]) as run:
        run.store.decide_now(ask())
        assert (await run.master.hear())[0] == b"shop\0"


async def test_a_master_may_have_a_name() -> None:
    """Which is that of an address of IPv4, also where the machine has both."""
    port = free_pair()
    store = SmockronStore(f"smockron://localhost:{port}")
    store.expect({"default": [LIMIT]})
    async with master(port) as peer:
        await store.start()
        assert await peer.subscribed() == b"default\0"
        await store.aclose()


async def test_a_master_that_is_away_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Requests pass, the log reports it from the start, and it reconnects later."""
    caplog.set_level("INFO")
    port = free_pair()
    store = SmockronStore(f"smockron://127.0.0.1:{port}", clock=ManualClock(START_US))
    store.expect({"default": [LIMIT]})
    await store.start()
    for _ in range(20_000):
        assert store.decide_now(ask()).wait_us == 0
    assert not store.is_ready
    await until(lambda: store.messages == {("ACCEPTED", "dropped"): 20_000})
    await until(lambda: "is unavailable" in caplog.text)
    for _ in range(2):
        async with master(port) as peer:
            assert await peer.subscribed() == b"default\0"
            await until(lambda: store.is_ready)
        await until(lambda: not store.is_ready)
        assert store.decide_now(ask()).wait_us == 0
    await store.aclose()
    assert caplog.text.count("is unavailable") == 3


@pytest.mark.parametrize(
    ("scope", "key", "identifier"),
    [
        ("default/ip", "203.0.113.7", "203.0.113.7"),
        ("default/ip#2", "203.0.113.7", "203.0.113.7"),
        ("default/all", "all", "all"),
        ("default/header:x-api-key", "header:x-api-key=s3cret", "s3cret"),
        ("default/header:x-api-key", "header:x-api-key=a%7Cb%3Dc", "a|b=c"),
        ("default/header:x-api-key", "header:x-api-key=%C3%A9%ED%B3%BF", "\u00e9\udcff"),
        ("default/header:x-api-key", "header:x-api-key=a%C3%~0", "a\udcc3%~0"),
        ("default/header:x-api-key", "ip=203.0.113.7", "ip=203.0.113.7"),
        ("default/header:x-api-key", "header:x-api-key=", "header:x-api-key="),
        ("default/host", "host=shop", "shop"),
        ("default/ip+route", "ip=203.0.113.7|route=/x", "ip=203.0.113.7|route=/x"),
        ("/v1/**/ip", "203.0.113.7", "203.0.113.7"),
    ],
)
def test_identifiers_are_those_that_other_gatekeepers_use(
    scope: str, key: str, identifier: str
) -> None:
    """The plain value of a key of one word; everything else as it is in other stores."""
    assert plain_of(scope)(key) == identifier


def test_it_is_a_store_in_this_process() -> None:
    """Which is asked without a task or a deadline."""
    assert isinstance(SmockronStore("smockron://127.0.0.1"), ImmediateStore)


def hear(store: SmockronStore, *frames: list[bytes]) -> None:
    """What the master says, without a socket."""
    store.hear(frames)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a number of identifiers in each domain, and what is past goes by itself."""
    monkeypatch.setattr(smockron, "MAX_HELD", 100)
    clock = ManualClock(START_US)
    store = SmockronStore("smockron://127.0.0.1", clock=clock)
    store.expect({"default": [LIMIT]})
    domain = store.domains["default"]
    for number in range(1000):
        until_us = START_US + SECOND_US
        frames = write_control(DelayUntil("default", f"k{number}", until_us))
        assert frames is not None
        hear(store, frames)
        assert len(domain.held) <= 100
    clock.advance(seconds=2)
    for number in range(60):
        frames = write_control(DelayUntil("default", f"n{number}", clock() + SECOND_US))
        assert frames is not None
        hear(store, frames)
    assert len(domain.held) == 60


Event = tuple[str, str, int]
"""Either the master holds somebody for so long, or somebody asks after so long."""


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hold", "ask", "ask", "ask"]),
            st.sampled_from(["a", "b"]),
            st.integers(0, 8_000),
        ),
        max_size=40,
    )
)
def test_any_program(events: list[Event]) -> None:
    """Against a model: the latest time that was received or assigned, never reduced."""
    clock = ManualClock(START_US)
    store = SmockronStore("smockron://127.0.0.1", clock=clock)
    store.expect({"default": [LIMIT]})
    held: dict[str, int] = {}
    for kind, name, ms in events:
        if kind == "hold":
            until_us = clock() + ms * 1000
            frames = write_control(DelayUntil("default", name, until_us))
            assert frames is not None
            hear(store, frames)
            held[name] = max(held.get(name, 0), -(-until_us // 1000) * 1000)
            continue
        clock.advance(us=ms * 100)
        turn_us = max(held.get(name, 0), clock())
        wait_us = turn_us - clock()
        verdict: Verdict = store.decide_now(ask(name))
        assert verdict.allowed == (wait_us <= LIMIT.max_wait_us)
        if verdict.allowed:
            assert verdict.wait_us == wait_us
            if wait_us:
                held[name] = turn_us + SECOND_US
        else:
            assert verdict.retry_after_us == wait_us


def test_nothing_that_is_heard_raises() -> None:
    """Whatever bytes come."""
    store = SmockronStore("smockron://127.0.0.1", clock=ManualClock(START_US))
    store.expect({"default": [LIMIT]})
    for frames in ([], [b""], [b"\xff"] * 5, [b"default\0", b"DELAY_UNTIL", b"\xff", b"1" * 500]):
        hear(store, frames)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyzmq, a configuration that needs it is refused with the package to install."""
    monkeypatch.setitem(sys.modules, "zmq", None)
    for module in ("gateway.systems.smockron.zeromq", "gateway.systems.smockron.store"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ConfigError) as failure:
        find_store("smockron://127.0.0.1")
    (problem,) = failure.value.problems
    assert problem.hint == install_hint("zmq")
