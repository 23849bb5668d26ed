"""What Envoy is told besides yes and no: header fields, bodies and metadata."""

from __future__ import annotations

import json

import pytest

from gateway.systems.envoy.messages import (
    OK,
    OVER_LIMIT,
    Descriptor,
    Override,
    read_reply,
    write_reply,
)
from tests.envoy_rls import config_of, serving, still_clock

A = {"a": "1"}
B = {"b": "1"}
RULES = """
    { match: { a: "*" }, limit: 3/h }
    { match: { b: "*" }, limit: 1/m, name: slow }
    { match: { c: "*" }, limit: 1/h, shadow: true }
    { match: { d: x }, refuse: true }
"""


async def test_nothing_is_added_unless_it_is_asked_for() -> None:
    """As with Envoy's own service."""
    async with serving(config_of(RULES), still_clock()) as service:
        reply = await service.ask(A, B)
        assert (reply.headers, reply.body, reply.metadata) == ((), b"", None)


async def test_fields_of_envoys_own_service_are_of_the_tightest_limit() -> None:
    """The first that refuses, or that with the least left."""
    async with serving(config_of(RULES, "headers: envoy"), still_clock()) as service:
        passed = await service.ask(A, B)
        assert passed.headers == [
            ("RateLimit-Limit", "1"),
            ("RateLimit-Remaining", "0"),
            ("RateLimit-Reset", "60"),
        ]
        assert (await service.ask(A)).headers[1] == ("RateLimit-Remaining", "1")
        refused = await service.ask(A, B)
        assert refused.headers == [
            ("RateLimit-Limit", "1"),
            ("RateLimit-Remaining", "0"),
            ("RateLimit-Reset", "60"),
            ("Retry-After", "60"),
        ]
        assert (await service.ask({"z": "1"})).headers == []


async def test_fields_of_envoys_own_service_may_have_other_names() -> None:
    """As with its settings LIMIT_LIMIT_HEADER and so on; the others keep their names."""
    options = "headers: envoy\nheader_names: { limit: X-Limit, reset: X-In }"
    async with serving(config_of(RULES, options), still_clock()) as service:
        names = [name for name, _ in (await service.ask(A)).headers]
        assert names == ["X-Limit", "RateLimit-Remaining", "X-In"]


async def test_retry_after_is_said_once() -> None:
    """If the reset has that name, it takes the place of the gateway's field."""
    options = "headers: envoy\nheader_names: { reset: retry-after }"
    async with serving(
        config_of("{ match: { a: '*' }, limit: 1/m }", options), still_clock()
    ) as it:
        await it.ask(A)
        names = [name for name, _ in (await it.ask(A)).headers]
        assert names == ["RateLimit-Limit", "RateLimit-Remaining", "retry-after"]


@pytest.mark.parametrize(
    ("style", "passed", "refused"),
    [
        (
            "draft",
            {
                "RateLimit-Policy": '"shop/a=*";q=3;w=3600, "shop/b=*";q=1;w=60',
                "RateLimit": '"shop/a=*";r=2;t=3600, "shop/b=*";r=0;t=60',
            },
            {
                "RateLimit-Policy": '"shop/a=*";q=3;w=3600, "shop/b=*";q=1;w=60',
                "RateLimit": '"shop/a=*";r=2, "shop/b=*";r=0;t=60',
                "Retry-After": "60",
            },
        ),
        (
            "legacy",
            {
                "X-RateLimit-Limit": "1",
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": "60",
            },
            {
                "X-RateLimit-Limit": "1",
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": "60",
                "Retry-After": "60",
            },
        ),
    ],
)
async def test_fields_may_be_those_of_routes(
    style: str, passed: dict[str, str], refused: dict[str, str]
) -> None:
    """The listener decides, not the policies."""
    async with serving(config_of(RULES, f"headers: {style}"), still_clock()) as service:
        assert dict((await service.ask(A, B)).headers) == passed
        assert dict((await service.ask(A, B)).headers) == refused


async def test_both_are_both() -> None:
    """In one answer."""
    async with serving(config_of(RULES, "headers: both"), still_clock()) as service:
        names = [name for name, _ in (await service.ask(A)).headers]
        assert names[:2] == ["RateLimit-Policy", "RateLimit"]
        assert names[2:] == ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]


async def test_a_shadow_is_in_no_field_but_those_of_envoys_own_service() -> None:
    """An admitted client needs no hurry."""
    async with serving(config_of(RULES, "headers: draft"), still_clock()) as service:
        for _ in range(2):
            reply = await service.ask({"c": "1"})
            assert (reply.code, reply.headers) == (OK, [])


@pytest.mark.parametrize(
    ("body", "said", "kind"),
    [
        ("text", b"Too many requests\n", "text/plain; charset=utf-8"),
        ("'<p>Later</p>'", b"<p>Later</p>", "text/plain; charset=utf-8"),
    ],
)
async def test_a_refusal_may_have_a_body(body: str, said: bytes, kind: str) -> None:
    """Of whatever policy, or none."""
    async with serving(config_of(RULES, f"body: {body}"), still_clock()) as service:
        assert (await service.ask(B)).body == b""
        for refused in (await service.ask(B), await service.ask({"d": "x"})):
            assert refused.code == OVER_LIMIT
            assert refused.body == said
            assert refused.headers == [("Content-Type", kind)]


async def test_a_body_may_be_a_problem_document() -> None:
    """That names the policy, and when to come back if that is known."""
    async with serving(config_of(RULES, "body: problem"), still_clock()) as service:
        await service.ask(B)
        refused = await service.ask(A, B)
        document = json.loads(refused.body)
        assert document["violated-policies"] == ["shop/b=*"]
        assert document["retry-after"] == 60
        never = json.loads((await service.ask({"d": "x"})).body)
        assert never["violated-policies"] == ["shop/d=x"]
        assert "retry-after" not in never


async def test_a_listener_in_shadow_tells_what_is_left_and_no_more() -> None:
    """No body, but the truth in the fields."""
    options = "headers: envoy\nbody: text\nshadow: true"
    async with serving(config_of(RULES, options), still_clock()) as service:
        await service.ask(B)
        reply = await service.ask(B)
        assert (reply.code, reply.body) == (OK, b"")
        assert ("RateLimit-Remaining", "0") in reply.headers


async def test_filters_are_told_what_was_asked() -> None:
    """In the form of Envoy's own service."""
    own = Descriptor((("a", "1"), ("b", "")), Override(5, 3), 2)
    options = "dynamic_metadata: true\noverrides: off"
    async with serving(config_of(RULES, options), still_clock()) as service:
        assert (await service.ask(A, own, hits=3)).metadata == {
            "domain": "shop",
            "descriptors": [
                {"entries": ["a=1"]},
                {
                    "entries": ["a=1", "b="],
                    "limit": "requests_per_unit:5 unit:HOUR",
                    "hitsAddend": 2,
                },
            ],
            "hitsAddend": 3,
        }
        for unit in (99, -1, -100):
            reply = await service.ask(own._replace(override=Override(5, unit)))
            assert reply.metadata is not None
            told = reply.metadata["descriptors"][0]["limit"]
            assert told == f"requests_per_unit:5 unit:{unit}"


async def test_filters_are_told_the_metadata_of_what_is_not_over() -> None:
    """Of two values the first applies, and mappings are merged, as with Envoy's own service."""
    rules = """
        { match: { a: "*" }, limit: 2/h, metadata: { plan: { name: a, of: [1, x] }, x: 1 } }
        { match: { b: "*" }, limit: 1/h, quota: on, metadata: { plan: { name: b, to: ~ }, y: 2 } }
        { match: { c: "*" }, limit: 1/h }
    """
    async with serving(config_of(rules, "dynamic_metadata: on"), still_clock()) as service:
        told = [(await service.ask(A, B, {"c": "1"})).metadata for _ in range(2)]
        told.append((await service.ask(A)).metadata)
        assert [one.get("metadata") for one in told if one is not None] == [
            {"plan": {"name": "a", "of": [1, "x"], "to": None}, "x": 1, "y": 2},
            {"plan": {"name": "a", "of": [1, "x"]}, "x": 1},
            {"plan": {"name": "a", "of": [1, "x"]}, "x": 1},
        ]
        reply = await service.ask({"c": "2"})
        assert reply.metadata == {"domain": "shop", "descriptors": [{"entries": ["c=2"]}]}
        assert read_reply(write_reply(reply)).metadata == reply.metadata


async def test_a_quota_that_is_over_says_nothing_of_when_to_come_back() -> None:
    """For the request has passed; if all are, it does."""
    rules = """
        { match: { a: "*" }, limit: 9/h, quota: true }
        { match: { b: "*" }, limit: 1/h, quota: true }
    """
    async with serving(config_of(rules, "headers: draft"), still_clock()) as service:
        await service.ask(A, B)
        passed = dict((await service.ask(A, B)).headers)
        assert "Retry-After" not in passed
        assert "r=7" in passed["RateLimit"]
        refused = dict((await service.ask(B)).headers)
        assert refused["Retry-After"] == "3600"
