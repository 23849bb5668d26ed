"""A client of HTTP/2 that may send anything, and judges every frame that it is sent.

It is written against RFC 9113 with `hyperframe` and `hpack`, and shares nothing with the gateway's
library.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import hpack
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PATIENCE_S: Final = 30.0
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW: Final = 65_535
FRAME_MAX: Final = 16_384

Fields = Sequence[tuple[str | bytes, str | bytes]]

_ONE_HOP: Final = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as bytes, whatever it says."""
    head = len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)
    return head + payload


def block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """Return a header block that leaves the tables of HPACK as they are."""
    encoded = b""
    for name, value in fields:
        encoded += b"\x00" + _text(name) + _text(value)
    return encoded


def _text(text: str | bytes) -> bytes:
    raw = text.encode("latin-1") if isinstance(text, str) else text
    return _length(len(raw)) + raw


def _length(size: int) -> bytes:
    """Return a length as HPACK writes it, with 7 bits before the rest (RFC 7541, section 5.1)."""
    if size < 127:
        return bytes((size,))
    size -= 127
    data = b"\x7f"
    while size >= 128:
        data += bytes((size % 128 + 128,))
        size //= 128
    return data + bytes((size,))


def headers(stream: int, fields: Fields, *, ends: bool = True, whole: bool = True) -> bytes:
    """Return a HEADERS frame, and those of CONTINUATION if one is not enough."""
    encoded = block(fields)
    parts = [encoded[at : at + FRAME_MAX] for at in range(0, len(encoded), FRAME_MAX)] or [b""]
    is_one = len(parts) == 1
    sent = frame(1, (1 if ends else 0) | (4 if whole and is_one else 0), stream, parts[0])
    for number, part in enumerate(parts[1:], 2):
        sent += frame(9, 4 if whole and number == len(parts) else 0, stream, part)
    return sent


def data(stream: int, body: bytes = b"", *, ends: bool = False) -> bytes:
    """Return a DATA frame."""
    return frame(0, 1 if ends else 0, stream, body)


def rst(stream: int, code: int = 8) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(3, 0, stream, code.to_bytes(4))


def update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(8, 0, stream, increment.to_bytes(4))


def head(
    method: str = "GET", path: str = "/", *more: tuple[str, str | bytes], host: str = "a.test"
) -> list[tuple[str | bytes, str | bytes]]:
    """Return the fields of a request."""
    return [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", host),
        *more,
    ]


def _frames_of(stream: int, body: bytes | None, chance: random.Random) -> list[bytes]:
    """Return the frames of a request, those of its head in one piece."""
    encoded = block(head("POST", f"/{stream}", ("x-n", str(stream))))
    cuts = sorted(chance.choices(range(1, len(encoded)), k=chance.randrange(3)))
    parts = [encoded[a:b] for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    ends = 1 if body is None else 0
    first = frame(1, ends | (4 if len(parts) == 1 else 0), stream, parts[0])
    rest = [
        frame(9, 4 if number == len(parts) - 1 else 0, stream, part)
        for number, part in enumerate(parts[1:], 1)
    ]
    found = [first + b"".join(rest)]
    if body is None:
        return found
    at = 0
    while at < len(body):
        size = chance.randrange(1, 50)
        found.append(data(stream, body[at : at + size]))
        at += size
    if chance.random() < 0.3:
        found.append(headers(stream, [("x-sum", "1")]))
    else:
        found.append(data(stream, ends=True))
    return found


def interleaved(bodies: Mapping[int, bytes | None], chance: random.Random) -> bytes:
    """Return the frames of requests for `/STREAM`, mixed with others that say nothing.

    Args:
        bodies: of each stream; None for none.
        chance: decides about the order.
    """
    queues = {stream: _frames_of(stream, body, chance) for stream, body in bodies.items()}
    sent = b""
    # Streams are opened in order.
    unopened = sorted(queues)
    while queues:
        stream = chance.choice([one for one in queues if one not in unopened or one == unopened[0]])
        if unopened and stream == unopened[0]:
            unopened.pop(0)
        sent += queues[stream].pop(0)
        if not queues[stream]:
            del queues[stream]
        if chance.random() < 0.2:
            sent += chance.choice([frame(6, 0, 0, bytes(8)), frame(99, 0, 0, b"x")])
    return sent


def noise(chance: random.Random, count: int) -> bytes:
    """Return frames of which some are valid."""
    sent = b""
    for _ in range(count):
        kind = chance.choice([0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, chance.randrange(256)])
        stream = chance.choice([0, 1, 1, 3, 3, 5, 7, 9, 2, chance.getrandbits(31)])
        piece = chance.randbytes(chance.choice([0, 1, 4, 4, 5, 6, 8, chance.randrange(300)]))
        if kind == 1 and chance.random() < 0.8:
            piece = block(head(chance.choice(["GET", "POST", "PUT"]), "/noise"))
        sent += frame(kind, chance.choice([0, 0, 1, 4, 5, 5, chance.randrange(256)]), stream, piece)
    return sent


class Heard:
    """What came on a stream.

    Attributes:
        status: of the final response; 0 for none.
        fields: of its head, in order.
        body: what came of it.
        trailers: after it.
        interim: the heads of interim responses.
        ended: whether it is complete.
        reset: the error code of RST_STREAM; -1 for none.
    """

    def __init__(self) -> None:
        self.status = 0
        self.fields: list[tuple[str, str]] = []
        self.body = b""
        self.trailers: list[tuple[str, str]] = []
        self.interim: list[list[tuple[str, str]]] = []
        self.ended = False
        self.reset = -1
        self.window = WINDOW
        self.may_send = WINDOW

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.ended or self.reset >= 0

    def get(self, name: str) -> str | None:
        """The value of a field; None without it."""
        found = [value for one, value in self.fields if one == name]
        assert len(found) < 2, found
        return found[0] if found else None


class Http2Client:
    """One connection.

    Attributes:
        heard: what came on each stream.
        goaways: last stream and error code of each GOAWAY frame.
        pongs: answers to PING.
        settings: the gateway's.
        is_closed: whether the gateway has closed.
        grants: whether to let the gateway send more as it sends.
        flaws: what was wrong with its frames.
        may_reset_answers: whether a stream may be reset with an error after a whole response.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, grants: bool = True
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.heard: dict[int, Heard] = {}
        self.goaways: list[tuple[int, int]] = []
        self.pongs = 0
        self.settings: dict[int, int] = {}
        self.is_closed = False
        self.grants = grants
        self.order: list[int] = []
        self.flaws: list[str] = []
        self.may_reset_answers = False
        self.window = WINDOW
        self.may_send = WINDOW
        self._initial = WINDOW
        self._next = 1
        self._decoder = hpack.Decoder()
        self._block: tuple[int, bool, bytes] | None = None
        self._changed = asyncio.Event()
        self._has_settings = False
        self._is_amid = False
        self._replies = b""
        self._task = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(
        cls,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        server_name: str = "localhost",
        begins: bool = True,
        grants: bool = True,
        receive_buffer: int = 0,
    ) -> Http2Client:
        """Return a connection to a port of loopback, after the preface if it begins."""
        # asyncio turns Nagle off only for a socket that says it is of TCP.
        sock = socket.socket(proto=socket.IPPROTO_TCP)
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        name = None if tls is None else server_name
        streams = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name)
        client = cls(*streams, grants=grants)
        if begins:
            client.send(PREFACE + frame(4, 0, 0))
        return client

    def send(self, sent: bytes) -> None:
        """Write; the gateway may have closed."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(sent)

    async def send_pieces(self, pieces: Iterable[bytes]) -> None:
        """Write in pieces; what the client has to reply meanwhile follows."""
        self._is_amid = True
        for piece in pieces:
            self.send(piece)
            await asyncio.sleep(0)
        self._is_amid = False
        replies, self._replies = self._replies, b""
        self.send(replies)

    def _reply(self, sent: bytes) -> None:
        if self._is_amid:
            self._replies += sent
        else:
            self.send(sent)

    def ask(
        self,
        path: str = "/",
        *more: tuple[str, str | bytes],
        method: str = "GET",
        body: bytes | None = None,
        ends: bool = True,
    ) -> int:
        """Send a request; return its stream. With a body or without `ends`, more may follow."""
        stream = self.open()
        ends_now = ends and body is None
        self.send(headers(stream, head(method, path, *more), ends=ends_now))
        if body is not None:
            pieces = [body[at : at + FRAME_MAX] for at in range(0, len(body), FRAME_MAX)] or [b""]
            for number, piece in enumerate(pieces, 1):
                self.send(data(stream, piece, ends=ends and number == len(pieces)))
        return stream

    def open(self) -> int:
        """Return the number of the next stream."""
        stream, self._next = self._next, self._next + 2
        self.heard[stream] = Heard()
        self.heard[stream].window = self._initial
        return stream

    async def upload(self, stream: int, body: bytes, *, ends: bool = True) -> None:
        """Send a body, or a piece of it, as the gateway's windows allow."""
        at = 0
        while at < len(body):
            await self.until(lambda: min(self.may_send, self.heard[stream].may_send) > 0)
            size = min(self.may_send, self.heard[stream].may_send, FRAME_MAX)
            piece = body[at : at + size]
            at += len(piece)
            self.may_send -= len(piece)
            self.heard[stream].may_send -= len(piece)
            self.send(data(stream, piece, ends=ends and at == len(body)))
            await asyncio.sleep(0)

    async def until(self, is_so: Any) -> None:
        """Wait until something is so, or fail."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                assert not self.is_closed, ("closed", self.goaways, self.flaws)
                self._changed.clear()
                await self._changed.wait()
        assert not self.flaws, self.flaws

    def count_over(self) -> int:
        """Return how many streams are over."""
        return sum(heard.is_over for heard in self.heard.values())

    async def answer(self, stream: int) -> Heard:
        """Return what came on a stream, once it is over."""
        heard = self.heard[stream]
        await self.until(lambda: heard.is_over)
        return heard

    async def get(self, path: str = "/", *more: tuple[str, str | bytes]) -> Heard:
        """Send a request without a body, and return its response."""
        return await self.answer(self.ask(path, *more))

    async def closed(self) -> None:
        """Wait until the gateway closes."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()
        assert not self.flaws, self.flaws

    async def synced(self) -> None:
        """Wait until the gateway has read everything that was sent."""
        before = self.pongs
        self.send(frame(6, 0, 0, b"in sync?"))
        await self.until(lambda: self.pongs > before)

    async def settle(self) -> None:
        """Wait until the gateway has read everything that was sent, or has closed."""
        before = self.pongs
        self.send(frame(6, 0, 0, b"in sync?"))
        async with asyncio.timeout(PATIENCE_S):
            while self.pongs == before and not self.is_closed and not self.goaways:
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        """Leave."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await self._task
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()
        assert not self.flaws, self.flaws

    def reset(self) -> None:
        """Break the connection off (RST)."""
        self._task.cancel()
        self.writer.transport.abort()

    def stop_reading(self) -> None:
        """Read no more."""
        self._task.cancel()

    # The judge.

    async def _read(self) -> None:
        buffer = b""
        try:
            while True:
                while len(buffer) >= 9:
                    length = int.from_bytes(buffer[:3])
                    if len(buffer) < 9 + length:
                        break
                    if length > FRAME_MAX:
                        self.flaws.append("a frame that is too large")
                    one, _ = Frame.parse_frame_header(memoryview(buffer[:9]), strict=True)
                    one.parse_body(memoryview(buffer[9 : 9 + length]))
                    buffer = buffer[9 + length :]
                    self._judge(one)
                    self._changed.set()
                more = await self.reader.read(65_536)
                if not more:
                    break
                buffer += more
        except (ConnectionError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a flaw of what was sent
            self.flaws.append(repr(error))
        if buffer:
            self.flaws.append("part of a frame")
        self.is_closed = True
        self._changed.set()

    def _judge(self, one: Frame) -> None:
        if not self._has_settings and not isinstance(one, SettingsFrame):
            self.flaws.append("the first frame is not SETTINGS")
        self._has_settings = True
        if self._block is not None and not isinstance(one, ContinuationFrame):
            self.flaws.append("a frame amid a header block")
        if isinstance(one, SettingsFrame):
            if "ACK" not in one.flags:
                self.settings.update(one.settings)
                self._reply(frame(4, 1, 0))
        elif isinstance(one, PingFrame):
            if "ACK" in one.flags:
                self.pongs += 1
            else:
                self._reply(frame(6, 1, 0, one.opaque_data))
        elif isinstance(one, GoAwayFrame):
            if self.goaways and one.last_stream_id > self.goaways[-1][0]:
                self.flaws.append("GOAWAY with a higher stream")
            self.goaways.append((one.last_stream_id, one.error_code))
        elif isinstance(one, WindowUpdateFrame):
            if not one.window_increment:
                self.flaws.append("WINDOW_UPDATE of 0")
            (self._heard(one.stream_id) if one.stream_id else self).may_send += one.window_increment
        else:
            self._judge_stream(one)

    def _heard(self, stream: int) -> Heard:
        """Return what came on a stream, also on one that the test opened in bytes of its own."""
        return self.heard.setdefault(stream, Heard())

    def _judge_stream(self, one: Frame) -> None:
        heard = self._heard(one.stream_id)
        if heard.reset >= 0 or (heard.ended and not isinstance(one, RstStreamFrame)):
            self.flaws.append(f"{one} on a stream that is over")
        if isinstance(one, HeadersFrame):
            self._block = (one.stream_id, "END_STREAM" in one.flags, one.data)
        elif isinstance(one, ContinuationFrame):
            if self._block is None or self._block[0] != one.stream_id:
                self.flaws.append("CONTINUATION of nothing")
                return
            self._block = (*self._block[:2], self._block[2] + one.data)
        elif isinstance(one, DataFrame):
            self._judge_data(heard, one)
        elif isinstance(one, RstStreamFrame):
            if heard.ended and one.error_code and not self.may_reset_answers:
                self.flaws.append("a whole response was reset with an error")
            heard.reset = one.error_code
        else:
            self.flaws.append(f"unexpected: {one}")
        if self._block is not None and "END_HEADERS" in one.flags:
            _, ends, encoded = self._block
            self._block = None
            self._judge_head(heard, self._decoder.decode(encoded, raw=True), ends=ends)

    def _judge_data(self, heard: Heard, one: DataFrame) -> None:
        size = one.flow_controlled_length
        heard.window -= size
        self.window -= size
        if heard.window < 0 or self.window < 0:
            self.flaws.append("more than the window allows")
        if not heard.status or heard.trailers:
            self.flaws.append("DATA outside of a body")
        heard.body += one.data
        self.order.append(one.stream_id)
        heard.ended = "END_STREAM" in one.flags
        if self.grants and size:
            heard.window += size
            self.window += size
            self._reply(update(0, size) + (b"" if heard.ended else update(one.stream_id, size)))

    def _judge_head(self, heard: Heard, raw: Any, *, ends: bool) -> None:
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]
        for name, value in fields:
            if name != name.lower() or name in _ONE_HOP or not name or " " in name:
                self.flaws.append(f"the field name {name!r}")
            if value != value.strip(" \t") or set(value) & set("\r\n\0"):
                self.flaws.append(f"the field value {value!r}")
        if heard.status:
            if not ends or any(name.startswith(":") for name, _ in fields):
                self.flaws.append("trailers that are not")
            heard.trailers = fields
        else:
            if [name for name, _ in fields if name.startswith(":")] != [":status"]:
                self.flaws.append("a head without one :status")
            if fields[0][0] != ":status":
                self.flaws.append(":status is not first")
            status = int(fields[0][1])
            if status < 200:
                if ends or status == 101:
                    self.flaws.append(f"an interim response {status} that is none")
                heard.interim.append(fields)
                return
            heard.status, heard.fields = status, fields[1:]
        heard.ended = ends
