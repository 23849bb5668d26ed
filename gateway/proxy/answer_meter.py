"""What a response says of the cost of its request, read while the response passes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.proxy.json_numbers import JsonNumbers

if TYPE_CHECKING:
    from gateway.limiter.costs import Settlement
    from gateway.proxy.upstream.answer_head import AnswerHead

MAX_INFLATED: Final = 64 << 20
"""Bytes of a compressed response that are read: a small one may be made of very much."""
MAX_LINE: Final = 256 << 10
"""Bytes of a line of an event stream that are read."""
_PIECE: Final = 64 << 10
_FIELD: Final = rb"\r\n(?i:%b):[ \t]*([^\r\n]*)"
_content_type = re.compile(_FIELD % b"content-type").search
_content_coding = re.compile(_FIELD % b"content-encoding").findall
_accepts_gzip = re.compile(
    rb"(?i)(?:^|[,:])\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))|,|$)"
).search
_accept_line: Final = re.compile(rb"(?im)^accept-encoding:([^\r\n]*)\r\n")
_IN_LINES: Final = (b"text/event-stream", b"application/x-ndjson", b"application/jsonl")


class EndedAnswer(NamedTuple):
    """What is known of a response when it has ended.

    Attributes:
        status: its status; 0 if there was none.
        sent: bytes of body that were sent to the client.
        duration_s: how long it took, from the first byte of the request.
        reserved: the cost that was assumed for it.
        fields: header lines of the upstream, each after a line end, and trailers.
        numbers: the numbers that were found in its body.
    """

    status: int
    sent: int
    duration_s: float
    reserved: int
    fields: bytes
    numbers: Mapping[str, float]


class AnswerMeter:
    """Reads a response on its way, and settles what its request has cost.

    Args:
        settlement: what remains to be done.
        names: the fields of a body in JSON that are wanted.
    """

    __slots__ = ("_body", "_fields", "_names", "_settlement")

    def __init__(self, settlement: Settlement, names: Sequence[str]) -> None:
        self._settlement = settlement
        self._names = names
        self._fields = b""
        self._body: _Body | None = None

    @property
    def reads_body(self) -> bool:
        """Whether the body of the response must be one that can be read."""
        return bool(self._names)

    def head(self, head: AnswerHead) -> None:
        """Note the head of the response that is passed on."""
        self._fields = head.fields
        if self._names:
            self._body = _body(self._names, head.fields)

    def read(self, data: bytes) -> None:
        """Read a piece of its body."""
        if self._body is not None:
            self._body.feed(data)

    def trailers(self, lines: bytes) -> None:
        """Note the lines after its body, each with a line end."""
        self._fields += b"\r\n" + lines

    def end(self, status: int, sent: int, duration_us: int) -> None:
        """Settle: the response has ended.

        Args:
            status: of the response; 0 if there was none.
            sent: bytes of its body that were sent.
            duration_us: how long it took, in microseconds.
        """
        numbers: Mapping[str, float] = {}
        if self._body is not None:
            numbers = self._body.end()
        fields = self._fields

        def ended(reserved: int) -> EndedAnswer:
            return EndedAnswer(status, sent, duration_us / 1e6, reserved, fields, numbers)

        self._settlement.settle(status, ended)


def readable_coding(fields: bytes) -> bytes:
    """Return the header lines of a request whose response must be readable in passing.

    The codings that its client accepts are narrowed to one that this gateway can read.
    """

    def narrowed(line: re.Match[bytes]) -> bytes:
        accepted = b"gzip" if _accepts_gzip(line.group(1)) else b"identity"
        return b"Accept-Encoding: %b\r\n" % accepted

    return _accept_line.sub(narrowed, fields)


class _Body:
    """Reads numbers in a body, whatever its coding and form.

    Args:
        names: what to look for.
        in_lines: whether each line of it is a text of its own.
        inflate: undoes its compression; None if it has none.
    """

    __slots__ = ("_in_lines", "_inflate", "_inflated", "_is_lost", "_line", "_numbers")

    def __init__(
        self, names: Sequence[str], *, in_lines: bool, inflate: zlib._Decompress | None
    ) -> None:
        self._numbers = JsonNumbers(names)
        self._in_lines = in_lines
        self._inflate = inflate
        self._inflated = 0
        self._is_lost = False
        self._line = b""

    def feed(self, data: bytes) -> None:
        """Read a piece of the body."""
        inflate = self._inflate
        if inflate is None:
            self._read(data)
            return
        try:
            while data and not self._is_lost and not inflate.eof:
                piece = inflate.decompress(data, _PIECE)
                data = inflate.unconsumed_tail
                self._inflated += len(piece)
                self._is_lost = self._inflated > MAX_INFLATED
                self._read(piece)
        except zlib.error:
            self._is_lost = True

    def end(self) -> Mapping[str, float]:
        """Return what was found."""
        if self._in_lines:
            self._take(self._line)
        else:
            self._numbers.end()
        return self._numbers.found

    def _read(self, data: bytes) -> None:
        if self._is_lost:
            return
        if not self._in_lines:
            self._numbers.feed(data)
            return
        *lines, rest = data.split(b"\n")
        if lines:
            self._take(self._line + lines[0])
            for line in lines[1:]:
                self._take(line)
            self._line = rest
        else:
            self._line += rest
        if len(self._line) > MAX_LINE:
            # What is left of it is no text that begins with a brace.
            self._line = b""

    def _take(self, line: bytes) -> None:
        """Read a whole line: `data: {...}` of an event stream, or the text alone."""
        text = line.removeprefix(b"data:").strip()
        if text[:1] == b"{":
            self._numbers.begin()
            self._numbers.feed(text)
            self._numbers.end()


def _body(names: Sequence[str], fields: bytes) -> _Body | None:
    """Return what reads a body of this kind; None if it cannot be read."""
    codings = [coding.strip().lower() for coding in _content_coding(fields)]
    inflate = None
    if codings and codings != [b"identity"]:
        if codings not in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
            return None
        # Both containers, found out by their first bytes.
        inflate = zlib.decompressobj(32 + zlib.MAX_WBITS)
    found = _content_type(fields)
    kind = b"" if found is None else found.group(1).split(b";")[0].strip().lower()
    return _Body(names, in_lines=kind in _IN_LINES, inflate=inflate)
