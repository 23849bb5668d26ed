"""Encodes requests for Throttr's records to the Lua scripts, and decodes their answers.

The scripts (`lua/throttr_v2.lua`, `lua/throttr_v5.lua`) answer what they saw. The answer to the
client is computed here by the code that answers for records in memory, so both answer alike.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Protocol

from gateway.base.errors import StoreReplyError, StoreTimeout
from gateway.stores.redis.script import server_now_us, without_brace
from gateway.stores.redis.source import THROTTR2, THROTTR5, Script
from gateway.systems.throttr.codec import INSERT, NO, QUERY, UPDATE, YES, Request
from gateway.systems.throttr.codec_v2 import GRACE_NS, answer, refusal
from gateway.systems.throttr.codec_v2 import UNITS_NS as UNITS2_NS
from gateway.systems.throttr.codec_v5 import UNITS, UNITS_NS, Answers5

WORD: Final = 1 << 32
NS_PER_US: Final = 1000


class RecordCodec(Protocol):
    """The encoding of the records of one version.

    Attributes:
        script: executes the requests.
        prefix: the prefix of the keys of all records.
        setting: an argument that the script gets once.
    """

    script: Script
    prefix: bytes
    setting: bytes

    def word(self, request: Request) -> bytes:
        """Return the script's argument for a request."""

    def read(self, request: Request, found: Any, now_ns: int) -> bytes:
        """Return the answer to a request, from the script's answer.

        Raises:
            TypeError, ValueError, IndexError, ArithmeticError, struct.error: the script never
            answers
                this.
        """


def record_key(prefix: bytes, key: bytes) -> bytes:
    """Return the Redis key of a record; the part in braces selects the slot of a Cluster."""
    if key and b"}" not in key and b"%" not in key:
        return prefix + b"{" + key + b"}"
    return prefix + b"{" + record_tag(key) + b"}"


def record_tag(key: bytes) -> bytes:
    """Return a key without what would end the braces; Redis takes an empty tag for none."""
    return without_brace(b"}", key) or b"%"


def encode(
    words: RecordCodec, requests: Sequence[Request], not_after_us: int, now_us: int = 0
) -> list[bytes]:
    """Return number of keys, keys and arguments for a script.

    Args:
        words: the encoding of the version.
        requests: the requests.
        not_after_us: server time after which nothing is to be done; 0 for no bound.
        now_us: 0 for the server's time; anything else is for tests only.
    """
    prefix, word = words.prefix, words.word
    return [
        b"%d" % len(requests),
        *[record_key(prefix, request[1]) for request in requests],
        b"%d" % now_us,
        b"%d" % not_after_us,
        words.setting,
        *[word(request) for request in requests],
    ]


def decode(words: RecordCodec, requests: Sequence[Request], reply: Any) -> list[bytes]:
    """Return the answers in a script's reply.

    Raises:
        StoreTimeout: the batch came too late; nothing was done.
        StoreReplyError: the script does not give this reply to these requests.
    """
    now_ns = server_now_us(reply) * NS_PER_US
    if len(reply) == 1:
        raise StoreTimeout("the store got to the batch after its deadline", "late")
    try:
        answers = zip(requests, reply[1:], strict=True)
        return [words.read(request, each, now_ns) for request, each in answers]
    except (TypeError, ValueError, IndexError, ArithmeticError, struct.error) as error:
        raise StoreReplyError("the script's answer does not fit the question") from error


def _ends_ns(anchor_us: float, ttl_lo: int, ttl_hi: float, unit_ns: int) -> int:
    """Return when a record expires: this many units after its anchor."""
    return int(anchor_us) * NS_PER_US + (int(ttl_hi) * WORD + ttl_lo) * unit_ns


class RecordCodec2:
    """The encoding of version 2.

    Args:
        domain: the namespace of all keys.
    """

    script = THROTTR2
    setting = b"%d" % (GRACE_NS // NS_PER_US)

    def __init__(self, domain: str) -> None:
        self.prefix = without_brace(b"{", f"{domain}:throttr2:".encode())
        self._request = struct.Struct("<BBBQQQ")
        self._state = struct.Struct("<BdIdIId")

    def word(self, request: Request) -> bytes:
        """See `RecordCodec`."""
        operation, _, code, change, value, ttl, usage = request
        return self._request.pack(operation, code, change, value, ttl, usage)

    def read(self, request: Request, found: Any, now_ns: int) -> bytes:
        """See `RecordCodec`."""
        operation = request[0]
        if found == 0:
            return refusal(request)
        if operation == INSERT:
            can, code, state = found[0] == 1, request[2], found[1:]
        elif operation != QUERY:
            return YES if found == 1 else NO
        else:
            can, code, state = True, found[0], found
        unit, anchor_us, ttl_lo, ttl_hi, quota_lo, quota_hi, _ = self._state.unpack(state)
        ends_ns = _ends_ns(anchor_us, ttl_lo, ttl_hi, UNITS2_NS[unit])
        return answer(can, quota_hi * WORD + quota_lo, code, ends_ns, now_ns)


class RecordCodec5:
    """The encoding of version 5.

    Args:
        domain: the namespace of all keys.
        size: bits of a value.
    """

    script = THROTTR5

    def __init__(self, domain: str, size: int) -> None:
        self.prefix = without_brace(b"{", f"{domain}:throttr5-{size}:".encode())
        self.setting = b"%d" % size
        self._answers = Answers5(size)
        self._request = struct.Struct("<BBBQQ")
        self._state = struct.Struct("<BBdIdII")

    def word(self, request: Request) -> bytes:
        """See `RecordCodec`."""
        operation, _, code, change, value, ttl, payload = request
        if operation != UPDATE:
            code = UNITS[code]
        word = self._request.pack(operation, code, change, value, ttl)
        return word if payload is None else word + payload

    def read(self, request: Request, found: Any, now_ns: int) -> bytes:
        """See `RecordCodec`."""
        if type(found) is int:
            return YES if found == 1 else NO
        state = self._state
        _, unit, anchor_us, ttl_lo, ttl_hi, quota_lo, quota_hi = state.unpack_from(found)
        ends_ns = _ends_ns(anchor_us, ttl_lo, ttl_hi, UNITS_NS[unit])
        if request[0] == QUERY:
            return self._answers.query(quota_hi * WORD + quota_lo, unit, ends_ns, now_ns)
        return self._answers.get(found[state.size :], unit, ends_ns, now_ns)
