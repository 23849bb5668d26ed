"""A client's bytes through a parser and records in memory, as a connection would do it."""

from __future__ import annotations

from typing import Final

from gateway.systems.throttr.codec import Parser
from gateway.systems.throttr.codec_v2 import Parser2
from gateway.systems.throttr.codec_v5 import Parser5
from gateway.systems.throttr.memory_v2 import Memory2
from gateway.systems.throttr.memory_v5 import Memory5
from gateway.systems.throttr.records import Records

START: Final = 10**18
MAX_MESSAGE: Final = 1 << 17


class Line:
    """A connection.

    Args:
        size: bits of a value of version 5; 0 for version 2.
        records: those of another connection, to share them.
    """

    def __init__(self, size: int, records: Records | None = None) -> None:
        self.records = Records(10**6, 10**9) if records is None else records
        self.parser: Parser = Parser5(size, MAX_MESSAGE) if size else Parser2()
        self.memory = Memory5(self.records, size) if size else Memory2(self.records)

    def say(self, data: bytes, now: int = START, limit: int = 1000) -> bytes:
        """What one read is answered."""
        if self.parser.is_ended:
            return b""
        self.parser.feed(data)
        answers = b""
        while self.parser.has_more:
            requests = self.parser.take(limit)
            done = 0
            while done < len(requests):
                told = self.memory.answer(requests[done:], now, 100)
                answers += b"".join(told)
                done += len(told)
        return answers
