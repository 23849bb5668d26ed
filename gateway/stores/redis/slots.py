"""Slots of a Redis Cluster: which ones a batch touches, and their servers. Values only.

A batch is split into parts, one for each slot, since a script may only touch keys of one. Most asks
are in one part. An ask whose limits count different identities is in several: each part spends all
or nothing by itself, and `join` combines the answers of the parts.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.base.errors import StoreError, StoreReplyError
from gateway.limits.decision import Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.redis.script import hash_tag

SLOTS: Final = 16384

Answer = Sequence[Verdict] | StoreError
"""The answer to a part: one verdict for each of its asks, or one failure for all."""


def slot_of(key: str) -> int:
    """Return the slot of an identity's keys."""
    return slot_of_tag(hash_tag(key))


def slot_of_tag(tag: bytes) -> int:
    """Return the slot of keys with this text in braces."""
    return crc_hqx(tag, 0) % SLOTS


class SlotPart(NamedTuple):
    """The asks of a batch, or pieces of them, that one slot can decide on.

    Attributes:
        slot: the slot.
        asks: the asks for it.
        places: for each of `asks`, its number in the batch and the positions of its limits there;
            None for an ask that is here as a whole.
    """

    slot: int
    asks: list[Ask]
    places: list[tuple[int, tuple[int, ...] | None]]


def slots_of(ask: Ask) -> set[int]:
    """Return the slots that an ask touches."""
    return {slot_of(key) for key in set(ask.keys)}


def split(asks: Sequence[Ask]) -> list[SlotPart]:
    """Return one part for each slot; the asks of a part stay in the order of the batch."""
    parts: dict[int, SlotPart] = {}
    for number, ask in enumerate(asks):
        for slot, positions in _pieces(ask):
            part = parts.get(slot)
            if part is None:
                part = parts[slot] = SlotPart(slot, [], [])
            part.asks.append(ask if positions is None else _piece(ask, positions))
            part.places.append((number, positions))
    return list(parts.values())


def split_by_key(asks: Sequence[Ask]) -> list[SlotPart]:
    """Return one part for each key: for a slot that is moving and has its keys on two servers."""
    return [
        SlotPart(slot_of(key), [_piece(ask, (position,))], [(number, (position,))])
        for number, ask in enumerate(asks)
        for position, key in enumerate(ask.keys)
    ]


class Joined(NamedTuple):
    """The result of a batch.

    Attributes:
        verdicts: one for each ask, or why there is none.
        undo: what parts took for asks that were refused, or failed, elsewhere.
    """

    verdicts: list[Verdict | StoreError]
    undo: list[tuple[Ask, Verdict]]


def join(asks: Sequence[Ask], parts: Sequence[SlotPart], answers: Sequence[Answer]) -> Joined:
    """Return the answers to the parts of a batch, combined."""
    verdicts: list[Verdict | StoreError] = [StoreError("not asked")] * len(asks)
    scattered: dict[int, list[_Piece]] = {}
    for part, answer in zip(parts, answers, strict=True):
        for index, (number, positions) in enumerate(part.places):
            found = answer if isinstance(answer, StoreError) else answer[index]
            if positions is None:
                verdicts[number] = found
            else:
                piece = _Piece(positions, part.asks[index], found)
                scattered.setdefault(number, []).append(piece)
    undo: list[tuple[Ask, Verdict]] = []
    for number, pieces in scattered.items():
        verdict = _join_pieces(len(asks[number].limits), pieces)
        verdicts[number] = verdict
        if isinstance(verdict, StoreError) or not verdict.allowed:
            undo += _taken(pieces)
    return Joined(verdicts, undo)


def pieces_of(ask: Ask, verdict: Verdict) -> Iterator[tuple[int, Ask, Verdict]]:
    """Yield for each slot of an ask its piece of the ask and the verdict."""
    for slot, positions in _pieces(ask):
        if positions is None:
            yield slot, ask, verdict
        else:
            decisions = [verdict.decisions[position] for position in positions]
            yield slot, _piece(ask, positions), verdict._replace(decisions=decisions)


def each_key_of(ask: Ask, verdict: Verdict) -> Iterator[tuple[int, Ask, Verdict]]:
    """Yield the same for each key of an ask on its own."""
    for position, key in enumerate(ask.keys):
        decisions = [verdict.decisions[position]]
        yield slot_of(key), _piece(ask, (position,)), verdict._replace(decisions=decisions)


class SlotRange(NamedTuple):
    """A range of slots and its primary; an empty host means the one that was asked."""

    first: int
    last: int
    host: str
    port: int


def read_slots(reply: object) -> list[SlotRange]:
    """Return the ranges in an answer to CLUSTER SLOTS.

    Raises:
        StoreReplyError: it is no such answer.
    """
    if not isinstance(reply, list):
        raise StoreReplyError("the answer to CLUSTER SLOTS is no list")
    try:
        return [_range(*entry[:3]) for entry in reply]
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise StoreReplyError("the answer to CLUSTER SLOTS has another shape") from error


class Redirect(NamedTuple):
    """The server of a slot, as another server names it; an empty host means that server's own."""

    slot: int
    host: str
    port: int


def read_redirect(text: str) -> Redirect:
    """Return the redirect in `MOVED slot host:port` or `ASK slot host:port`.

    Raises:
        StoreReplyError: it cannot be understood.
    """
    try:
        _, slot, address = text.split(" ")[:3]
        host, _, port = address.rpartition(":")
        return Redirect(int(slot), "" if host == "?" else host.strip("[]"), int(port))
    except ValueError:
        raise StoreReplyError("the store redirects in another way than known") from None


def _range(first: int, last: int, primary: list[bytes | int]) -> SlotRange:
    host = primary[0].decode() if isinstance(primary[0], bytes) else ""
    port = primary[1]
    if not (0 <= first <= last < SLOTS and isinstance(port, int)):
        raise ValueError("no range of slots")
    return SlotRange(first, last, "" if host == "?" else host, port)


class _Piece(NamedTuple):
    positions: tuple[int, ...]
    ask: Ask
    found: Verdict | StoreError


def _pieces(ask: Ask) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """Yield the slots of an ask with the positions of their limits; None for all of them."""
    keys = ask.keys
    first = keys[0] if keys else ""
    if all(key == first for key in keys):
        yield slot_of(first), None
        return
    by_slot: dict[int, list[int]] = {}
    for position, key in enumerate(keys):
        by_slot.setdefault(slot_of(key), []).append(position)
    if len(by_slot) == 1:
        yield next(iter(by_slot)), None
        return
    for slot, positions in by_slot.items():
        yield slot, tuple(positions)


def _piece(ask: Ask, positions: tuple[int, ...]) -> Ask:
    return ask.part(positions, _subset(ask.limits, positions))


@lru_cache(maxsize=1024)
def _subset(limits: tuple[Limit, ...], positions: tuple[int, ...]) -> tuple[Limit, ...]:
    """Return the same tuple each time: the codec identifies limits by object."""
    return tuple([limits[position] for position in positions])


def _join_pieces(count: int, pieces: Sequence[_Piece]) -> Verdict | StoreError:
    decisions: list[Decision | None] = [None] * count
    for positions, _, found in pieces:
        if isinstance(found, StoreError):
            return found
        for position, decision in zip(positions, found.decisions, strict=True):
            decisions[position] = decision
    return combine([decision for decision in decisions if decision is not None])


def _taken(pieces: Sequence[_Piece]) -> Iterator[tuple[Ask, Verdict]]:
    for _, ask, found in pieces:
        if not isinstance(found, StoreError) and found.allowed and ask.cost:
            yield ask, found
