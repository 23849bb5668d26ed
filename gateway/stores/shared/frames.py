"""The protocol between workers and their limiter, as bytes.

A frame is its length in four bytes, then one byte for its kind, then its content. The limits of
asks are sent once, as a plan, and afterwards named by its number. Both ends are the same program,
so there are no versions. This module does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from struct import Struct
from typing import Any, Final, NamedTuple

from gateway.limits import ALGORITHMS
from gateway.limits.decision import Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask

MAX_FRAME: Final = 16 << 20
"""Bytes of one frame: a thousand asks whose keys are as long as a header field may be."""

PLAN: Final = 1
DECIDE: Final = 2
GIVE_BACK: Final = 3
RENEW: Final = 4
FORGET: Final = 5
"""The kinds of frames that a worker sends. Only `DECIDE` and `RENEW` are answered, in order. After
`FORGET` there are no plans, and the next one has the number 0 again.
"""

VERDICTS: Final = 1
LATE: Final = 2
RENEWED: Final = 3
"""The kinds of answers. `LATE`: the batch came too late, and nothing was spent."""

Limits = tuple[Limit, ...]
NumberOf = Callable[[Limits], int]

_LENGTH: Final = Struct("<I")
_MOMENT: Final = Struct("<q")
_ASK: Final = Struct("<IQq")
_ASK_OF_ONE: Final = Struct("<IQqI")
_COST: Final = Struct("<Q")
_EACH: Final = 2**64 - 1
"""In the place of a cost: each limit has its own, and they follow."""
_RECEIPT: Final = Struct("<q")
_DECISION: Final = Struct("<?qqqqqq")

_FIELDS: Final = tuple(
    field.name
    for field in fields(Limit)
    if field.name not in {"interval_ns", "tolerance_ns", "debt_us", "furthest_ns"}
)
"""The fields of a limit that are sent; the others follow from these."""


def frame(kind: int, content: bytes = b"") -> bytes:
    """Return a whole frame.

    Raises:
        ValueError: it would be longer than the other end reads.
    """
    size = len(content) + 1
    if size > MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes is too long")
    return b"%b%c%b" % (_LENGTH.pack(size), kind, content)


class Splitter:
    """Splits a stream of bytes into frames, wherever it was broken on its way."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now, each without its length and never empty.

        Raises:
            ValueError: the next length is one that is never sent.
        """
        rest = self._rest + data if self._rest else data
        found = []
        place, end = 0, len(rest)
        while end - place >= 4:
            (size,) = _LENGTH.unpack_from(rest, place)
            if not 0 < size <= MAX_FRAME:
                raise ValueError(f"no frame has {size} bytes")
            after = place + 4 + size
            if after > end:
                break
            found.append(rest[place + 4 : after])
            place = after
        self._rest = rest[place:]
        return found


class FramePlan(NamedTuple):
    """Limits that were sent once.

    Attributes:
        limits: in the order of an ask.
        holding: the positions of those that are held until they are given back.
    """

    limits: Limits
    holding: tuple[int, ...]


def encode_plan(limits: Limits) -> bytes:
    """Return the frame that gives these limits the next number, counted from 0."""
    words = [[getattr(limit, name) for name in _FIELDS] for limit in limits]
    return frame(PLAN, json.dumps(words).encode())


def decode_plan(content: bytes) -> FramePlan:
    """Return the plan that `encode_plan` encoded.

    Raises:
        ValueError, TypeError: the content is no plan.
    """
    limits = tuple(Limit(**dict(zip(_FIELDS, words, strict=True))) for words in json.loads(content))
    if not limits or any(limit.algorithm not in ALGORITHMS for limit in limits):
        raise ValueError("a plan has limits, of algorithms that there are")
    holding = [
        place for place, limit in enumerate(limits) if ALGORITHMS[limit.algorithm].renew is not None
    ]
    return FramePlan(limits, tuple(holding))


def encode_asks(asks: Iterable[Ask], number_of: NumberOf, not_after_us: int) -> bytes:
    """Return the frame of a batch.

    Args:
        asks: the asks.
        number_of: returns the number of their plan.
        not_after_us: after this time, by the clock of this machine, no request waits for the
            answer; 0 for never.
    """
    parts = [_MOMENT.pack(not_after_us)]
    for ask in asks:
        limits, keys, cost, max_wait_us = ask
        if len(keys) == 1:
            key = keys[0].encode("utf-8", "surrogatepass")
            parts += _ASK_OF_ONE.pack(number_of(limits), cost, max_wait_us, len(key)), key
        else:
            parts.append(_encode_ask(ask, number_of))
    return frame(DECIDE, b"".join(parts))


def _encode_ask(ask: Ask, number_of: NumberOf) -> bytes:
    parts = [_ASK.pack(number_of(ask.limits), _EACH if ask.costs else ask.cost, ask.max_wait_us)]
    parts += [_COST.pack(cost) for cost in ask.costs]
    for key in ask.keys:
        encoded = key.encode("utf-8", "surrogatepass")
        parts += _LENGTH.pack(len(encoded)), encoded
    return b"".join(parts)


def decode_asks(
    content: bytes, plans: Sequence[FramePlan]
) -> tuple[int, list[tuple[Ask, FramePlan]]]:
    """Return the time after which no request waits, and the asks, each with its plan.

    Raises:
        ValueError, IndexError, struct.error: the content is no batch about these plans.
    """
    (not_after_us,) = _MOMENT.unpack_from(content)
    place, end = _MOMENT.size, len(content)
    asks = []
    while place < end:
        ask, plan, place = _decode_ask(content, place, plans)
        asks.append((ask, plan))
    return not_after_us, asks


def _decode_ask(
    content: bytes, place: int, plans: Sequence[FramePlan]
) -> tuple[Ask, FramePlan, int]:
    number, cost, max_wait_us = _ASK.unpack_from(content, place)
    place += _ASK.size
    plan = plans[number]
    costs: tuple[int, ...] = ()
    if cost == _EACH:
        size = len(plan.limits) * _COST.size
        costs = tuple([each for (each,) in _COST.iter_unpack(content[place : place + size])])
        place += size
    keys = []
    for _ in plan.limits:
        (size,) = _LENGTH.unpack_from(content, place)
        begin = place + 4
        place = begin + size
        if place > len(content):
            raise ValueError("a key goes on after its frame")
        keys.append(content[begin:place].decode("utf-8", "surrogatepass"))
    ask = Ask(plan.limits, tuple(keys), cost, max_wait_us).with_costs(costs)
    return ask, plan, place


def encode_undo(kind: int, ask: Ask, verdict: Verdict, number_of: NumberOf) -> bytes:
    """Return the frame of `GIVE_BACK` or `RENEW`: an allowed ask, and the store's verdict."""
    receipts = [_RECEIPT.pack(decision.receipt) for decision in verdict.decisions]
    return frame(kind, _encode_ask(ask, number_of) + b"".join(receipts))


def decode_undo(content: bytes, plans: Sequence[FramePlan]) -> tuple[Ask, Verdict, FramePlan]:
    """Return what `encode_undo` encoded; of the decisions only their receipts.

    Raises:
        ValueError, IndexError, struct.error: the content is something else.
    """
    ask, plan, place = _decode_ask(content, 0, plans)
    if len(content) - place != len(plan.limits) * _RECEIPT.size:
        raise ValueError("not one receipt for each limit")
    receipts = _RECEIPT.iter_unpack(content[place:])
    decisions = tuple(Decision(True, 0, 0, 0, 0, 0, receipt) for (receipt,) in receipts)
    return ask, Verdict(True, 0, 0, decisions), plan


def encode_verdicts(verdicts: Iterable[Verdict]) -> bytes:
    """Return the frame of the answers to a batch."""
    pack = _DECISION.pack
    return frame(
        VERDICTS,
        b"".join([pack(*decision) for verdict in verdicts for decision in verdict.decisions]),
    )


def decode_verdicts(content: bytes, asks: Sequence[Ask]) -> list[Verdict]:
    """Return the answers to these asks.

    Raises:
        ValueError, struct.error: the content is not the answers to these asks.
    """
    decisions: list[Any] = list(_DECISION.iter_unpack(content))
    if len(decisions) != sum(len(ask.limits) for ask in asks):
        raise ValueError("not one decision for each limit")
    verdicts = []
    place = 0
    for ask in asks:
        count = len(ask.limits)
        if count == 1:
            decision = Decision._make(decisions[place])
            allowed, wait_us, retry_after_us = decision[:3]
            verdicts.append(Verdict(allowed, wait_us, retry_after_us, (decision,)))
        else:
            verdicts.append(combine([*map(Decision._make, decisions[place : place + count])]))
        place += count
    return verdicts
