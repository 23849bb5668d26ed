"""Policies and limits for tests of answers, and a strict reader of the fields that tell of them.

The fields are read with a small parser of Structured Fields (RFC 9651), not with patterns: a
field that a client's parser refuses is worth nothing.
"""

from __future__ import annotations

import re

from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits.rate import Limit
from gateway.observe.metrics import PolicyMetrics

SECOND_US = 1_000_000
Items = list[tuple[str, dict[str, int | str]]]


def parse_list(text: str) -> Items:
    """A List of Strings with parameters (RFC 9651, section 4.2), read strictly.

    These are Integers, but for `qu`, which is a String.
    """
    items: Items = []
    position = 0
    text_of = r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"'
    string = re.compile(text_of)
    parameter = re.compile(
        r"; *([a-z*][a-z0-9_\-.*]*)=(?:(-?[0-9]{1,15})(?![0-9.])|" + text_of + ")"
    )
    while True:
        found = string.match(text, position)
        assert found, text[position:]
        parameters: dict[str, int | str] = {}
        position = found.end()
        while more := parameter.match(text, position):
            assert more[1] not in parameters
            parameters[more[1]] = more[3] if more[2] is None else int(more[2])
            position = more.end()
        items.append((re.sub(r"\\(.)", r"\1", found[1]), parameters))
        if position == len(text):
            return items
        comma = re.compile(r"[ \t]*,[ \t]*").match(text, position)
        assert comma, text[position:]
        position = comma.end()


def fields_of(lines: bytes) -> dict[str, str]:
    """Header lines; each name once, each line ended, nothing but printable ASCII in them."""
    assert lines == b"" or lines.endswith(b"\r\n")
    fields: dict[str, str] = {}
    for line in lines.decode("ascii").split("\r\n")[:-1]:
        name, separator, value = line.partition(": ")
        assert separator
        assert re.fullmatch(r"[A-Za-z-]+", name)
        assert re.fullmatch(r"[\x20-\x7e]*", value), value
        assert name not in fields
        fields[name] = value
    return fields


def policy(
    name: str = "pay",
    *,
    status: int = 429,
    body: str = "problem",
    draft: bool = True,
    legacy: bool = True,
) -> CompiledPolicy:
    """A policy."""
    return CompiledPolicy(
        name=name,
        queue_max=0,
        status=status,
        body=body,
        on_store_error="local",
        draft_headers=draft,
        legacy_headers=legacy,
        metrics=PolicyMetrics(),
    )


def rule(limit: Limit, the_policy: CompiledPolicy | None = None, title: str = "pay") -> Rule:
    """A rule."""
    return Rule(the_policy or policy(), limit, lambda _: "k", title, "ip")
