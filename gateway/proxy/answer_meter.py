"""What a response says of the cost of its request, read while the response passes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.proxy.json_numbers import JsonNumbers

if TYPE_CHECKING:
    from gateway.proxy.upstream.answer_head import AnswerHead

MAX_RATIO: Final = 64
"""Bytes that are read of a compressed response for each of its own: a few may hold very many."""
SPARE: Final = 1 << 20
"""Bytes that are read of it whatever their number was."""
_PIECE: Final = 64 << 10
_FIELD: Final = rb"\r\n(?i:%b):[ \t]*([^\r\n]*)"
_content_type = re.compile(_FIELD % b"content-type").search
_content_coding = re.compile(_FIELD % b"content-encoding").findall
_accepts_gzip = re.compile(
    rb"(?i)(?:^|[,:])\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))|,|$)"
).search
_accept_line: Final = re.compile(rb"(?im)^accept-encoding:([^\r\n]*)\r\n")
_EVENTS: Final = b"text/event-stream"
_IN_LINES: Final = (b"application/x-ndjson", b"application/jsonl")
_ANY_WINDOW: Final = 32 + zlib.MAX_WBITS
_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_PREFIX: Final = len(_BOM) + len(b"data:")


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


Settle = Callable[[int, Callable[[int], EndedAnswer], bool], None]
"""Settles, given the status, what returns the rest, and whether the response was cut."""


class AnswerMeter:
    """Reads a response on its way, and settles what its request has cost.

    Args:
        settle: `Settlement.settle` of the request.
        names: the fields of a body in JSON that are wanted.
    """

    __slots__ = ("_body", "_fields", "_has_head", "_names", "_settle")

    def __init__(self, settle: Settle, names: Sequence[str]) -> None:
        self._settle = settle
        self._names = names
        self._fields = b""
        self._has_head = False
        self._body: _Body | None = None

    @property
    def reads_body(self) -> bool:
        """Whether the body of the response must be one that can be read."""
        return bool(self._names)

    def head(self, head: AnswerHead) -> None:
        """Note the head of the response that is passed on."""
        self._fields = head.fields
        self._has_head = True
        if self._names:
            self._body = _body(self._names, head.fields)

    def replaced(self, fields: bytes) -> None:
        """Note the fields of a response that the gateway answers with a page of its own."""
        self._fields = fields

    def read(self, data: bytes) -> None:
        """Read a piece of its body."""
        if self._body is not None:
            self._body.feed(data)

    def trailers(self, lines: bytes) -> None:
        """Note the lines after its body, each with a line end."""
        self._fields += b"\r\n" + lines

    def end(self, status: int, sent: int, duration_us: int, *, is_broken: bool) -> None:
        """Settle: the response has ended.

        Args:
            status: of the response; 0 if there was none.
            sent: bytes of its body that were sent.
            duration_us: how long it took, in microseconds.
            is_broken: whether something went wrong.
        """
        numbers: Mapping[str, float] = {}
        if self._body is not None:
            numbers = self._body.end()
        fields = self._fields

        def ended(reserved: int) -> EndedAnswer:
            return EndedAnswer(status, sent, duration_us / 1e6, reserved, fields, numbers)

        # What the gateway answers itself is whole.
        self._settle(status, ended, is_broken and (self._has_head or not status))


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
        in_events: whether each event of it is one.
        inflate: undoes its compression; None if it has none.
    """

    __slots__ = (
        "_begun",
        "_in_events",
        "_in_lines",
        "_inflatable",
        "_inflate",
        "_is_lost",
        "_is_open",
        "_is_read",
        "_numbers",
    )

    def __init__(
        self,
        names: Sequence[str],
        *,
        in_lines: bool,
        in_events: bool,
        inflate: zlib._Decompress | None,
    ) -> None:
        self._numbers = JsonNumbers(names)
        self._in_lines = in_lines
        self._in_events = in_events
        # The beginning of a line, until it is known whether it is read; whether a text is open.
        self._begun = b""
        self._is_read: bool | None = None
        self._is_open = False
        self._inflate = inflate
        self._inflatable = SPARE
        self._is_lost = False

    def feed(self, data: bytes) -> None:
        """Read a piece of the body."""
        inflate = self._inflate
        if inflate is None:
            self._read(data)
            return
        try:
            self._inflatable += len(data) * MAX_RATIO
            is_full = False
            while (data or is_full) and not self._is_lost:
                if inflate.eof:
                    # Another member follows (RFC 1952, section 2.2).
                    self._inflate = inflate = zlib.decompressobj(_ANY_WINDOW)
                piece = inflate.decompress(data, _PIECE)
                # There may be more of it, although everything was taken.
                is_full = len(piece) == _PIECE
                data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
                self._inflatable -= len(piece)
                self._is_lost = self._inflatable < 0
                self._read(piece)
        except zlib.error:
            self._is_lost = True

    def end(self) -> Mapping[str, float]:
        """Return what was found."""
        if self._in_lines:
            self._read_line(b"", ends=True)
        self._numbers.end()
        return self._numbers.found

    def _read(self, data: bytes) -> None:
        if self._is_lost:
            return
        if not self._in_lines:
            self._numbers.feed(data)
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._read_line(line, ends=True)
        self._read_line(rest, ends=False)

    def _read_line(self, piece: bytes, *, ends: bool) -> None:
        """Read a piece of a line: of `data: {...}` in an event stream, or of the text alone."""
        if self._is_read is None:
            self._begun += piece
            if not ends and len(self._begun) < _LONGEST_PREFIX:
                return
            piece, self._begun = self._begun.removeprefix(_BOM), b""
            self._is_read = self._begin_line(piece)
            piece = piece.removeprefix(b"data:")
        if self._is_read:
            self._numbers.feed(piece)
        if ends:
            if self._is_read:
                self._numbers.feed(b"\n")
            self._is_read = None

    def _begin_line(self, line: bytes) -> bool:
        """Return whether a line is read; begin a text where one begins."""
        if self._in_events and not line.strip():
            self._is_open = False
            return False
        if self._in_events and not line.startswith(b"data:"):
            return False
        if not self._is_open:
            self._numbers.end()
            self._numbers.begin()
            # The lines of one event are one text, all others are each for themselves.
            self._is_open = self._in_events
        return True


def _body(names: Sequence[str], fields: bytes) -> _Body | None:
    """Return what reads a body of this kind; None if it cannot be read."""
    codings = [coding.strip().lower() for coding in _content_coding(fields)]
    inflate = None
    if codings and codings != [b"identity"]:
        if codings not in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
            return None
        # Both containers, found out by their first bytes.
        inflate = zlib.decompressobj(_ANY_WINDOW)
    found = _content_type(fields)
    kind = b"" if found is None else found.group(1).split(b";")[0].strip().lower()
    in_events = kind == _EVENTS
    in_lines = in_events or kind in _IN_LINES
    return _Body(names, in_lines=in_lines, in_events=in_events, inflate=inflate)
