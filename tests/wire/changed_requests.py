"""Requests with something done to them: cut out, put in, doubled, exchanged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.wire.requests import CASES

POST_WITH_TRAILERS: Final = (
    b"POST /hidden HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\nX-First: 1\r\nX_Last: 2\r\n\r\n"
)
"""What may leave something behind, if anything does."""
TOKENS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b"\x00", b"\x0b", b":", b",", b";", b"0"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Transfer-Encoding: identity\r\n", b"Connection: close\r\n", b"Host: b.test\r\n"),
    *(b"chunked", b"5\r\nhello\r\n", b"0\r\n\r\n", b"HTTP/1.0", b"HTTP/1.1", b"\xff", b"%2e%2e/"),
    *(b"Expect: 100-continue\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"hello"),
    *(b"GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n", b"X: y\r\n", b"//", b"http://b.test"),
    *(b"X_Forwarded_For: 6.6.6.6\r\n", b"Transfer_Encoding: chunked\r\n", b"Content_Length: 5\r\n"),
    *(
        b"0\r\nX-Last: 2\r\n\r\n",
        b"0\r\nContent-Encoding: gzip\r\nHost: evil.test\r\n\r\n",
        b";a=b",
    ),
    POST_WITH_TRAILERS,
)
KINDS: Final = ("insert", "replace", "delete", "double", "join")
BASES: Final = tuple(
    case.sent
    for case in CASES.values()
    # An answer to HEAD cannot be told from others without knowing what was read as what.
    if len(case.sent) < 1_000 and b"HEAD" not in case.sent
)


class Edit(NamedTuple):
    """One thing done to a request.

    Attributes:
        kind: one of `KINDS`.
        at: where, from 0 to 1.
        size: bytes taken away, or doubled.
        token: which of `TOKENS` is put in, or which of `BASES` is joined on.
    """

    kind: str
    at: float
    size: int
    token: int


def mutated(base: bytes, edits: Sequence[Edit]) -> bytes:
    """A request after some edits, one after the other."""
    for edit in edits:
        at = int(edit.at * len(base))
        end = at + edit.size
        token = TOKENS[edit.token % len(TOKENS)]
        if edit.kind == "insert":
            base = base[:at] + token + base[at:]
        elif edit.kind == "replace":
            base = base[:at] + token + base[end:]
        elif edit.kind == "delete":
            base = base[:at] + base[end:]
        elif edit.kind == "double":
            base = base[:end] + base[at:]
        else:
            base += BASES[edit.token % len(BASES)]
    return base


def some(seed: int, count: int) -> list[bytes]:
    """This many mutated requests, the same for the same seed."""
    chance = random.Random(seed)
    return [
        mutated(
            chance.choice(BASES),
            [
                Edit(
                    chance.choice(KINDS),
                    chance.random(),
                    chance.randrange(1, 12),
                    chance.randrange(1000),
                )
                for _ in range(chance.randrange(1, 4))
            ],
        )
        for _ in range(count)
    ]
