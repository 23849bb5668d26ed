"""Requests of Throttr v5 on records in memory: one loop for all requests of a read."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from gateway.systems.throttr.codec import (
    DECREASE,
    GET,
    INCREASE,
    INSERT,
    NO,
    OPERATIONS,
    PATCH,
    PURGE,
    QUERY,
    QUOTA,
    SET,
    TTL,
    UPDATE,
    YES,
    Request,
)
from gateway.systems.throttr.codec_v5 import UNITS, UNITS_NS, Answers5
from gateway.systems.throttr.records import ENDS, SHARD_MASK, UNIT, VALUE, Record, Records


class Memory5:
    """Carries out requests.

    Args:
        records: the records.
        size: bits of a value.

    Attributes:
        counts: how often each operation was answered by 00, and by anything else: two numbers for
            each, by its code.
    """

    __slots__ = ("_answers", "_records", "counts")

    def __init__(self, records: Records, size: int) -> None:
        self._records = records
        self._answers = Answers5(size)
        self.counts: MutableSequence[int] = [0] * (2 * len(OPERATIONS))

    def answer(self, requests: Sequence[Request], now_ns: int, room: int) -> list[bytes]:  # noqa: C901, PLR0912
        """Carry out requests in order, and return their answers.

        Args:
            requests: as `Parser5` takes them.
            now_ns: the current time.
            room: how many bytes of buffers the answers may have; the answer that exceeds it is the
                last.

        Returns:
            The answers to all requests, or to the first ones, as many as there is room for.
        """
        dicts, counts = self._records.dicts, self.counts
        query, greatest = self._answers.query, self._answers.greatest
        answers: list[bytes] = []
        add = answers.append
        for operation, key, code, change, value, ttl, payload in requests:
            shard = dicts[hash(key) & SHARD_MASK]
            record = shard.get(key)
            if record is not None and record[1] <= now_ns:
                record = None
            answer = NO
            if operation == INSERT or operation == SET:  # noqa: SIM109 - quicker than a tuple
                if record is None and self._add(key, code, ttl, value, payload, now_ns):
                    answer = YES
            elif record is None:
                pass
            elif operation == UPDATE:
                if code == QUOTA:
                    quota, ends_ns, unit, gone_ns, held = record
                    if held is None and (change != DECREASE or quota >= value):
                        if change == DECREASE:
                            quota -= value
                        elif change == INCREASE:
                            quota = quota + value if quota + value < greatest else greatest
                        elif change == PATCH:
                            quota = value
                        shard[key] = (quota, ends_ns, unit, gone_ns, None)
                        answer = YES
                elif code == TTL:
                    self._change_ttl(key, record, change, value, now_ns)
                    answer = YES
            elif operation == QUERY:
                if record[4] is None:
                    answer = query(record[0], record[2], record[1], now_ns)
            elif operation == GET:
                held = record[VALUE]
                if held is not None:
                    answer = self._answers.get(held, record[UNIT], record[ENDS], now_ns)
                    room -= len(held)
            elif operation == PURGE:
                self._records.remove(key)
                answer = YES
            counts[2 * operation + (answer is not NO)] += 1
            add(answer)
            if room < 0:
                break
        return answers

    def _add(
        self, key: bytes, code: int, ttl: int, quota: int, value: bytes | None, now_ns: int
    ) -> bool:
        """Add a record, unless it has expired already; return whether there was room."""
        unit = UNITS[code]
        ends_ns = now_ns + ttl * UNITS_NS[unit]
        if not ttl:
            return True
        return self._records.put(key, (quota, ends_ns, unit, ends_ns, value), now_ns)

    def _change_ttl(self, key: bytes, record: Record, change: int, value: int, now_ns: int) -> None:
        quota, ends_ns, unit, _, held = record
        span_ns = value * UNITS_NS[unit]
        if change == PATCH:
            ends_ns = now_ns + span_ns
        elif change == INCREASE:
            ends_ns += span_ns
        elif change == DECREASE:
            ends_ns -= span_ns
        if ends_ns <= now_ns:
            self._records.remove(key)
        else:
            self._records.change(key, (quota, ends_ns, unit, ends_ns, held))
