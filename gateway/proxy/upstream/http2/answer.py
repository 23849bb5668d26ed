"""The answer on one stream: fields and pieces in, and what an exchange reads of any answer out."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.base.errors import UpstreamProtocolError
from gateway.proxy.http2.lines import answer_lines, trailer_section
from gateway.proxy.upstream.answer_head import KNOWN_MAX, AnswerHead, read_answer_head
from gateway.proxy.upstream.answer_reader import NO_BODY, AnswerReader

if TYPE_CHECKING:
    from gateway.proxy.http2.framing import Field

_CHUNKED: Final = b"\r\nTransfer-Encoding: chunked"


class StreamAnswer(AnswerReader):
    """Reads one answer, whose frames the library has taken apart.

    A body without a length is, to everything behind it, one in chunks: its end is marked too.
    """

    __slots__ = ()

    def take_interim(self, fields: tuple[Field, ...]) -> None:
        """Take an interim answer.

        Raises:
            UpstreamProtocolError: there are too many, or it makes no sense.
        """
        self.has_begun = True
        head = _head(fields, self._max_head, is_whole=True)
        if head.status == 101:
            # RFC 9113, section 8.6.
            raise UpstreamProtocolError("switched protocols on a stream")
        self._on_interim_answer(head)

    def take_head(self, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of the final answer.

        Raises:
            UpstreamProtocolError: it is not valid.
        """
        self.has_begun = True
        head = _head(fields, self._max_head, is_whole=is_whole)
        self.head = head
        self.status = head.status
        self.length = head.length
        self.has_head = True
        self.is_complete = is_whole

    def take_data(self, data: bytes, *, is_last: bool) -> bool:
        """Take a piece of the body; return whether it is kept, to be read."""
        self.is_complete = self.is_complete or is_last
        if not data or self._is_head or self.status in NO_BODY:
            return False
        self._add(data)
        return True

    def take_trailers(self, fields: tuple[Field, ...]) -> None:
        """Take the end of the answer."""
        self.trailers = trailer_section(fields)
        self.is_complete = True


def _head(fields: tuple[Field, ...], max_head: int, *, is_whole: bool) -> AnswerHead:
    size = 0
    for name, value in fields:
        size += len(name) + len(value) + 4
    if size > max_head:
        raise UpstreamProtocolError("the head is beyond the limit")
    # Applications repeat themselves, so the last few are cached.
    return _known_head(fields, is_whole) if size <= KNOWN_MAX else _read_head(fields, is_whole)


def _read_head(fields: tuple[Field, ...], is_whole: bool) -> AnswerHead:  # noqa: FBT001 - cached
    head = read_answer_head(answer_lines(fields))
    if head.length is None and not is_whole:
        head = read_answer_head(answer_lines(fields) + _CHUNKED)
    return head


_known_head: Final = lru_cache(maxsize=512)(_read_head)
