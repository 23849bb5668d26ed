"""Requests of Throttr v2 on records in memory: one loop for all requests of a read."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from gateway.systems.throttr.codec import (
    DECREASE,
    INCREASE,
    INSERT,
    NO,
    OPERATIONS,
    PATCH,
    PURGE,
    QUERY,
    QUOTA,
    TTL,
    YES,
    Request,
)
from gateway.systems.throttr.codec_v2 import (
    GRACE_NS,
    GREATEST,
    NOT_THERE,
    UNITS_NS,
    answer,
    refusal,
)
from gateway.systems.throttr.records import SHARD_MASK, Record, Records


class Memory2:
    """Carries out requests.

    Args:
        records: the records.

    Attributes:
        counts: how often each operation was answered by no, and by yes: two numbers for each, by
            its code.
    """

    __slots__ = ("_records", "counts")

    def __init__(self, records: Records) -> None:
        self._records = records
        self.counts: MutableSequence[int] = [0] * (2 * len(OPERATIONS))

    def answer(self, requests: Sequence[Request], now_ns: int, room: int) -> list[bytes]:
        """Carry out requests in order, and return their answers.

        Args:
            requests: as `Parser2` takes them.
            now_ns: the current time.
            room: not used: all answers are short.

        Returns:
            The answers of all requests.
        """
        dicts, counts = self._records.dicts, self.counts
        answers: list[bytes] = []
        for request in requests:
            operation, key, code, change, value, _, usage = request
            shard = dicts[hash(key) & SHARD_MASK]
            record = shard.get(key)
            if record is not None and record[3] <= now_ns:
                record = None
            told = NO
            can = False
            if operation == INSERT:
                if record is None or record[1] <= now_ns:
                    can, told = self._create(request, now_ns)
                else:
                    quota, ends_ns, unit, gone_ns, _ = record
                    can = quota >= usage
                    if can:
                        quota -= usage
                        shard[key] = (quota, ends_ns, unit, gone_ns, None)
                    told = answer(can, quota, code, ends_ns, now_ns)
            elif operation == QUERY:
                told = NOT_THERE
                if record is not None and record[1] > now_ns:
                    can = True
                    told = answer(can, record[0], record[2], record[1], now_ns)
            elif record is not None:
                can = True
                told = YES
                if operation == PURGE:
                    self._records.remove(key)
                else:
                    self._update(key, record, code, change, value, now_ns)
            counts[2 * operation + can] += 1
            answers.append(told)
        return answers

    def _create(self, request: Request, now_ns: int) -> tuple[bool, bytes]:
        """Create a record; return whether it may consume, and the answer."""
        _, key, unit, _, quota, ttl, usage = request
        can = quota >= usage
        if can:
            quota -= usage
        ends_ns = now_ns + ttl * UNITS_NS[unit]
        record = (quota, ends_ns, unit, ends_ns + GRACE_NS, None)
        if not self._records.put(key, record, now_ns):
            return False, refusal(request)
        return can, answer(can, quota, unit, ends_ns, now_ns)

    def _update(
        self, key: bytes, record: Record, attribute: int, change: int, value: int, now_ns: int
    ) -> None:
        quota, ends_ns, unit, gone_ns, _ = record
        if attribute == QUOTA:
            if change == PATCH:
                quota = value
            elif change == INCREASE:
                quota = min(quota + value, GREATEST)
            elif change == DECREASE:
                quota = max(quota - value, 0)
        elif attribute == TTL:
            span_ns = value * UNITS_NS[unit]
            if change == PATCH:
                ends_ns = now_ns + span_ns
            elif change == INCREASE:
                ends_ns += span_ns
            elif change == DECREASE:
                ends_ns -= span_ns
            gone_ns = max(ends_ns, now_ns) + GRACE_NS
        self._records.change(key, (quota, ends_ns, unit, gone_ns, None))
