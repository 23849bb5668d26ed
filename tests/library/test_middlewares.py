"""The middlewares for aiohttp and ASGI, beside the gateway whose answers they give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from gateway import Limiter, Policy
from gateway.base.errors import ConfigError
from gateway.config.models.policies import HeaderStyle, IfMissing
from gateway.integrations.guard import Guard
from tests.conftest import StartGateway
from tests.library.http import Serve, asgi_served, site_at
from tests.servers import until
from tests.upstreams import Upstream

POLICIES: Mapping[str, Any] = {
    "plain": {"limit": "1/h per header:X-API-Key", "if_missing": "reject"},
    "asking": {"limit": "1/h per header:X-API-Key", "if_missing": "unauthorized"},
    "text": {"limit": "1/h per all", "on_limit": {"status": 503, "body": "text"}},
    "none": {"limit": "1/h per all", "on_limit": {"body": "none"}, "headers": "draft"},
    "own": {"limit": "1/h per all", "on_limit": {"body": "Go away"}, "headers": "none"},
    "two": {"limits": ["5/h per all", "1/m per query:user"]},
}


@pytest.mark.parametrize("name", POLICIES)
async def test_refusals_are_those_of_the_gateway(
    name: str, serve: Serve, start_gateway: StartGateway, nginx_upstream: Upstream
) -> None:
    """Status, fields and body are the same, to the byte; so are the fields of what passes."""
    options: dict[str, Any] = {"headers": {"X-API-Key": "k"}, "params": {"user": "u"}}
    definition = repr(dict(POLICIES[name])).replace("'", '"')
    gateway = start_gateway(
        f'policies: {{ "{name}": {definition} }}\n'
        f"routes: {{ /**: {{ upstream: {nginx_upstream.url}, policies: [{name}] }} }}\n"
    )
    limiter = Limiter.from_mapping({"policies": {name: POLICIES[name]}})
    async with serve(limiter, name) as site, site_at(gateway.url) as other:
        both = (site, other)
        passed, theirs = [await each.ask("/hello", **options) for each in both]
        fields = {"ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining"}
        for field in fields:
            assert passed.headers.get(field) == theirs.headers.get(field)
        assert passed.body == b"hello "
        refused, theirs = [await each.ask("/hello", **options) for each in both]
        assert refused.own == theirs.own
        if "if_missing" in POLICIES[name]:
            missing, theirs = [await each.ask("/hello") for each in both]
            status = 400 if POLICIES[name]["if_missing"] == "reject" else 401
            assert (missing.status, missing.own) == (status, theirs.own)
            challenge = missing.headers.get("WWW-Authenticate", "")
            assert bool(challenge) == (status == 401)
            assert challenge == theirs.headers.get("WWW-Authenticate", "")


async def test_a_segment_of_the_pattern_is_a_key(serve: Serve) -> None:
    """It is counted as in the gateway; a pattern without it is a mistake."""
    limiter = Limiter(Policy("user", "1/h per path:id"))
    async with serve(limiter, {"/users/{id}": "user"}) as site:
        paths = ["/users/a", "/users/%61", "/users/b", "/users/a;x", "/hello"]
        found = [(await site.ask(path)).status for path in paths]
        assert found == [404, 429, 404, 400, 200]
    with pytest.raises(ValueError, match=r"no parameter \{id\}"):
        Guard(limiter, {"/users/{name}": "user"})
    with pytest.raises(ValueError, match=r"no parameter \{id\}"):
        Guard(limiter, "user")
    async with limiter:
        # A key that the caller names takes the place of what the limit is per.
        assert [(await limiter.acquire("c")).allowed for _ in range(2)] == [True, False]


async def test_every_kind_of_answer_says_what_is_left(serve: Serve) -> None:
    """Plain, streamed, an error of the framework's own, and the opening of a WebSocket."""
    async with serve(Limiter(Policy("pay", "9/h")), "pay") as site:
        streamed = await site.ask("/stream")
        assert (streamed.body, streamed.headers["X-RateLimit-Remaining"]) == (b"streamed", "8")
        lost = await site.ask("/nowhere")
        assert (lost.status, lost.headers["X-RateLimit-Remaining"]) == (404, "7")
        posted = await site.ask("/hello", "POST", data=b"x" * 300_000)
        assert (len(posted.body), posted.headers["X-RateLimit-Remaining"]) == (300_006, "6")
        async with site.session.ws_connect(site.url("/socket")) as ws:
            assert await ws.receive_str() == "connected"
        assert (await site.ask("/hello")).headers["X-RateLimit-Remaining"] == "4"


async def test_the_handshake_of_a_websocket_can_be_refused(serve: Serve) -> None:
    """With the answer that any other request would get."""
    async with serve(Limiter(Policy("pay", "1/h")), "pay") as site:
        await site.ask("/hello")
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await site.session.ws_connect(site.url("/socket"))
        assert caught.value.status == 429
        assert caught.value.headers is not None
        assert caught.value.headers["Retry-After"] == "3600"


@pytest.mark.parametrize("style", ["draft", "legacy", "both", "throttlex", "none"])
async def test_limits_of_the_application_give_way(style: HeaderStyle, serve: Serve) -> None:
    """Each name is there once, as in the gateway; when to come back the application knows."""
    async with serve(Limiter(Policy("p", "9/h", headers=style)), "p") as site:
        answer = await site.ask("/limited")
    theirs = {name.lower() for name, value in answer.headers.items() if "555" in value}
    names = {name.lower() for name in answer.headers}
    has_draft, has_legacy = style in {"draft", "both"}, style not in {"draft", "none"}
    assert len(answer.headers) == len(names)
    assert {"ratelimit", "x-ratelimit-limit"} <= names
    assert ("ratelimit" in theirs) == (not has_draft)
    assert ({"x-ratelimit-limit", "x-ratelimit-used"} & theirs == set()) == has_legacy
    assert "retry-after" in theirs
    assert answer.headers["X-Kept"] == "yes"


@pytest.mark.parametrize("if_missing", ["ip", "skip", "shared", "reject"])
async def test_several_values_are_not_missing(if_missing: IfMissing, serve: Serve) -> None:
    """Of a header or query parameter they are refused, and of a cookie each is spent."""
    limiter = Limiter(
        Policy("head", "1/h per header:X-API-Key", if_missing=if_missing),
        Policy("query", "1/h per query:key", if_missing=if_missing),
        Policy("cookie", "1/h per cookie:sid", if_missing=if_missing),
    )
    patterns = {"/hello": "head", "/limited": "query", "/slow": "cookie"}
    async with serve(limiter, patterns) as site:
        for values in (("a", "b"), ("b", "a"), ("", "a")):
            lines = CIMultiDict(("X-API-Key", value) for value in values)
            assert (await site.ask("/hello", headers=lines)).status == 400
        same = CIMultiDict([("X-API-Key", "a"), ("X-API-Key", "a")])
        assert [(await site.ask("/hello", headers=same)).status for _ in "12"] == [200, 429]
        for query in ("key=a&key=b", "k%65y=a&key=b", "key=a;key=b", "x=1;key=a"):
            assert (await site.ask(f"/limited?{query}")).status == 400
        cookies = ("sid=a; sid=b", "sid=b", "sid=c; sid=a", "sid=c")
        statuses = [(await site.ask("/slow", headers={"Cookie": line})).status for line in cookies]
        assert statuses == [200, 429, 429, 200]


async def test_no_other_spelling_reaches_what_folds_names() -> None:
    """Frameworks on ASGI may read `X_API_Key` as `X-API-Key`, which is counted by."""
    limiter = Limiter(Policy("p", "9/h per header:X-API-Key"))
    names = ("X_API_Key", "X-API_Key", "X_Forwarded_For", "X_Other", "X-API-Key")
    async with asgi_served(limiter, "p") as site:
        answer = await site.ask("/limited", headers=dict.fromkeys(names, "v"))
    told = {line.partition(":")[0] for line in answer.body.decode().split("|")}
    assert {name for name in names if name.lower() in told} == {"X_Other", "X-API-Key"}


async def test_patterns_choose_the_policies(serve: Serve) -> None:
    """As routes do in the gateway: the most specific one, and what fits none is free."""
    limiter = Limiter(Policy("read", "9/h per route"), Policy("write", "1/h", "5/h per all"))
    patterns = {"POST /hello": ["write", "read"], "/hello": "read", "/s{}/**": "read"}
    with pytest.raises(ConfigError, match="is not a parameter"):
        Guard(limiter, patterns)
    del patterns["/s{}/**"]
    async with serve(limiter, patterns) as site:
        assert (await site.ask("/hello")).headers["X-RateLimit-Remaining"] == "8"
        assert (await site.ask("/hello", "POST")).status == 200
        assert (await site.ask("/hello", "POST")).status == 429
        assert "RateLimit" not in (await site.ask("/stream")).headers
        bad = await site.ask("/hello", headers={"Host": "a b"})
        assert bad.status == 400
    with pytest.raises(ValueError, match="did you mean write"):
        Guard(limiter, {"/**": "wrote"})


@pytest.mark.parametrize(
    "path", ["/%68ello", "/hello%2F", "/x/../hello", "/hello/../x", "/h/%2e%2e/hello", "//hello"]
)
async def test_no_spelling_of_a_path_is_a_way_around_a_limit(serve: Serve, path: str) -> None:
    """It is counted like any other, refused because it could be read in two ways, or unknown."""
    async with serve(Limiter(Policy("p", "1/h per all")), {"/hello": "p", "/x/y": "p"}) as site:
        assert (await site.ask("/hello")).status == 200
        assert (await site.ask(path)).status in {400, 404, 429}


async def test_the_head_of_an_answer_is_counted_as_the_answer(serve: Serve) -> None:
    """Frameworks run the same handler for both."""
    async with serve(Limiter(Policy("p", "1/h per all")), {"GET /hello": "p"}) as site:
        assert (await site.ask("/hello", "HEAD")).status == 200
        assert (await site.ask("/hello")).status == 429


async def test_clients_are_found_behind_trusted_proxies_only(serve: Serve) -> None:
    """An address reported by an untrusted peer is ignored."""
    headers = {"X-Forwarded-For": "203.0.113.9"}
    for trusted in (["127.0.0.0/8"], []):
        limiter = Limiter(Policy("pay", "3/h"), trusted_proxies=trusted)
        async with serve(limiter, "pay") as site:
            await site.ask("/hello")
            await site.ask("/hello")
            answer = await site.ask("/hello", headers=headers)
            assert answer.headers["X-RateLimit-Remaining"] == ("2" if trusted else "0")


async def test_a_request_waits_for_its_turn(serve: Serve) -> None:
    """Its body is complete afterwards; a request without room in the queue is refused."""
    # All four have come long before the first turn, on any machine.
    policy = Policy("slow", "1/s burst 1 per all", queue={"max": 2, "max_wait": "5s"})
    async with serve(Limiter(policy), "slow") as site:
        started = asyncio.get_running_loop().time()
        asked = [site.ask("/hello", "POST", data=b"y" * 200_000) for _ in range(4)]
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status for answer in answers) == [200, 200, 200, 429]
        assert {len(answer.body) for answer in answers if answer.status == 200} == {200_006}
        assert asyncio.get_running_loop().time() - started >= 2


async def test_slots_are_held_while_a_request_is_worked_on(serve: Serve) -> None:
    """A limit such as `1 at once` lets the next one in when the last one is answered."""
    is_whole = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        await is_whole.wait()

    limiter = Limiter(Policy("one", "1 at once per all"))
    async with serve(limiter, "one") as site:
        slow = asyncio.get_running_loop().create_task(site.ask("/hello", "POST", data=body()))
        await until(lambda: limiter.metrics.policies["one"].passed == 1)
        assert (await site.ask("/hello")).status == 429
        is_whole.set()
        assert (await slow).status == 200
        assert (await site.ask("/hello")).status == 200


async def test_who_leaves_while_waiting_gives_his_turn_back() -> None:
    """Under ASGI, where the server reports it: the next request has the turn."""
    # Two turns are further away than anybody waits.
    policy = Policy("slow", "1/2s burst 1 per all", queue={"max": 5, "max_wait": "3s"})
    limiter = Limiter(policy)
    async with asgi_served(limiter, "slow") as site:
        await site.ask("/hello")
        leaver = asyncio.get_running_loop().create_task(site.ask("/hello"))
        await until(lambda: limiter.metrics.policies["slow"].waiting == 1)
        leaver.cancel()
        await until(lambda: limiter.metrics.policies["slow"].waiting == 0)
        assert (await site.ask("/hello")).status == 200


async def test_exceptions_are_those_of_the_gateway(serve: Serve, tmp_path: Path) -> None:
    """By pattern, list and field; a list in a file is read again when it changes."""
    path = tmp_path / "partners.txt"
    path.write_text("gold\n")
    limiter = Limiter.from_mapping(
        {
            "lists": {"partners": {"per": "header:X-API-Key", "file": str(path)}},
            "policies": {
                "pay": {
                    "limit": "1/h per all",
                    "except": ["partners", "POST /hello", {"headers": {"X-Plan": "int*"}}],
                }
            },
        }
    )
    async with serve(limiter, "pay") as site:
        asked = [await site.ask("/hello") for _ in range(2)]
        assert [one.status for one in asked] == [200, 429]
        for key, value in (("X-API-Key", "gold"), ("X-Plan", "internal")):
            assert (await site.ask("/hello", headers={key: value})).status == 200
        silver = {"X-API-Key": "silver"}
        assert (await site.ask("/hello", headers=silver)).status == 429
        path.write_text("silver\n")
        async with asyncio.timeout(30):
            # Each look takes a while itself.
            while (await site.ask("/hello", headers=silver)).status != 200:
                pass
    gone = Limiter.from_mapping(
        {
            "lists": {"gone": {"file": str(tmp_path / "gone")}},
            "policies": {"pay": {"limit": "1/h", "except": "gone"}},
        }
    )
    with pytest.raises(ConfigError, match="cannot be read"):
        await gone.open()
    own = Policy("own", "1/h per all", except_=["POST /hello"])
    async with serve(Limiter(own), "own") as site:
        assert [(await site.ask("/hello")).status for _ in range(2)] == [200, 429]
    some = Policy("some", "1/h per all", only={"headers": {"X-Plan": "free"}})
    async with serve(Limiter(some), "some") as site:
        assert [(await site.ask("/hello")).status for _ in range(3)] == [200] * 3
        free = {"X-Plan": "free"}
        found = [(await site.ask("/hello", headers=free)).status for _ in range(2)]
        assert found == [200, 429]
