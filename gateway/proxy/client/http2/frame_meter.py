"""Counts a client's frames, before they are read: what costs the gateway work and says nothing.

No HTTP/2 server may treat these frames as errors one by one, and each is cheap; many of them are an
attack. The limits are token buckets: a burst, and so many per second. They are wide enough for any
client that has a reason: browsers cancel a page's requests, gRPC clients send PINGs, and every
receiver sends WINDOW_UPDATEs, in proportion to what it is sent.
"""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How a client begins (RFC 9113, section 3.4)."""

RESETS_BURST: Final = 200.0
RESETS_PER_S: Final = 20.0
"""Streams that end without their response: those that the client resets (CVE-2023-44487), and those
that it makes the gateway reset (CVE-2025-8671)."""
IDLE_BURST: Final = 1000.0
IDLE_PER_S: Final = 50.0
"""SETTINGS, PING and PRIORITY frames, unknown ones, and DATA and CONTINUATION frames that are
empty (CVE-2019-9512, -9515, -9518, -9513)."""
UPDATES_BURST: Final = 1000.0
UPDATES_PER_S: Final = 200.0
"""WINDOW_UPDATE frames, besides one for each `BYTES_AN_UPDATE` that were sent, and
`UPDATES_A_REQUEST` for each request: clients of gRPC send some for a response of any size."""
BYTES_AN_UPDATE: Final = 256
UPDATES_A_REQUEST: Final = 4
LOST_HEADS_MAX: Final = 1000
"""Most heads of streams that were refused because there are too many, or whose number is used."""

_HEADER: Final = 9
_DATA: Final = 0
_HEADERS: Final = 1
_PRIORITY: Final = 2
_RST_STREAM: Final = 3
_GOAWAY: Final = 7
_WINDOW_UPDATE: Final = 8
_CONTINUATION: Final = 9
_END_STREAM: Final = 1
_END_HEADERS: Final = 4


class FrameAllowance:
    """How many of something a client may still do."""

    __slots__ = ("_burst", "_per_s", "_seen", "left")

    def __init__(self, burst: float, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self.left = burst
        self._seen = now

    def take(self, now: float) -> bool:
        """Count one; return whether that is too many."""
        self.left -= 1
        if self.left >= 0:
            return False
        self.left = min(self.left + (now - self._seen) * self._per_s, self._burst)
        self._seen = now
        return self.left < 0


class FrameMeter:
    """Counts the frames of one connection.

    Args:
        now: the loop's time.

    Attributes:
        heads: how many have begun, those after bodies included.
        is_in_head: whether a head has begun to arrive and is not complete.
    """

    __slots__ = (
        "_begun",
        "_ends_head",
        "_idle",
        "_left",
        "_resets",
        "_updates",
        "heads",
        "is_in_head",
    )

    def __init__(self, now: float) -> None:
        self._left = len(PREFACE)
        self._begun = b""
        self._resets = FrameAllowance(RESETS_BURST, RESETS_PER_S, now)
        self._idle = FrameAllowance(IDLE_BURST, IDLE_PER_S, now)
        self._updates = FrameAllowance(UPDATES_BURST, UPDATES_PER_S, now)
        self.heads = 0
        self.is_in_head = False
        # Whether the head is complete with the frame that has begun to arrive.
        self._ends_head = False

    def __repr__(self) -> str:
        return f"<FrameMeter: {self._left} bytes to the next frame>"

    def sent(self, size: int) -> None:
        """Note that the client was sent so many bytes, and may say that it has read them."""
        self._updates.left += size / BYTES_AN_UPDATE

    def reset(self, now: float) -> str:
        """Count a stream that the gateway had to reset; return as `count` does."""
        return "http2_resets" if self._resets.take(now) else ""

    def idle(self, now: float) -> str:
        """Count a frame that says nothing; return as `count` does."""
        return "http2_flood" if self._idle.take(now) else ""

    def count(self, data: bytes, now: float) -> str:
        """Count the frames that begin in these bytes.

        Returns:
            The kind of error if there are too many of a kind, or one is wrong; empty if not.
        """
        if self._begun:
            data = self._begun + data
            self._begun = b""
        at = self._left
        size = len(data)
        if self._ends_head and at <= size:
            self.is_in_head = self._ends_head = False
        while at + _HEADER <= size:
            length = int.from_bytes(data[at : at + 3], "big")
            kind = data[at + 3]
            flags = data[at + 4]
            at += _HEADER + length
            if kind in (_HEADERS, _CONTINUATION):
                self._ends_head = at > size and bool(flags & _END_HEADERS)
                self.is_in_head = at > size or not flags & _END_HEADERS
            if kind == _PRIORITY and not any(data[at - length - 4 : at - length]):
                # RFC 9113, section 6.3; the framing ignores these frames.
                return "http2_protocol"
            if error := self._frame(kind, flags, length, now):
                return error
        if at < size:
            self._begun = data[at:]
            self._left = 0
        else:
            self._left = at - size
        return ""

    def _frame(self, kind: int, flags: int, length: int, now: float) -> str:
        """Count a frame; return as `count` does."""
        if kind in (_HEADERS, _GOAWAY):
            if kind == _HEADERS:
                self.heads += 1
                self._updates.left += UPDATES_A_REQUEST
            return ""
        if kind == _DATA:
            says_nothing = not length and not flags & _END_STREAM
        elif kind == _CONTINUATION:
            says_nothing = not length
        elif kind == _RST_STREAM:
            return self.reset(now)
        elif kind == _WINDOW_UPDATE:
            return "http2_flood" if self._updates.take(now) else ""
        else:
            says_nothing = True
        return self.idle(now) if says_nothing else ""
