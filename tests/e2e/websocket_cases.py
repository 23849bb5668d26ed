"""What can be said to a WebSocket server, rightly and wrongly: the categories of Autobahn's suite.

A case is a list of turns: bytes to send, and how many frames to wait for before the next turn.
After the last the server closes, by itself or since it was asked to.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0
RSV1: Final = 0x40

NORMAL, PROTOCOL_ERROR, INVALID_DATA = 1000, 1002, 1007
"""Status codes of a close frame (RFC 6455, section 7.4.1)."""

MASK: Final = b"\x37\xfa\x21\x3d"


class Turn(NamedTuple):
    """Bytes for the server, and how many frames it answers before the next turn."""

    data: bytes
    frames: int = 0


class Case(NamedTuple):
    """One conversation.

    Attributes:
        name: what is tried.
        turns: what is said.
        code: how the server closes.
        offer: `Sec-WebSocket-Extensions` of the handshake; empty for none.
        piece: bytes that are sent at a time; 0 for all of a turn.
    """

    name: str
    turns: Sequence[Turn]
    code: int = NORMAL
    offer: str = ""
    piece: int = 0


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, bits: int = 0, masked: bool = True
) -> bytes:
    """A frame as a client sends it (RFC 6455, section 5.2)."""
    size = len(payload)
    mask_bit = 0x80 if masked else 0
    first = bytes([(0x80 if fin else 0) | bits | opcode])
    if size < 126:
        head = first + bytes([mask_bit | size])
    elif size < 1 << 16:
        head = first + bytes([mask_bit | 126]) + size.to_bytes(2, "big")
    else:
        head = first + bytes([mask_bit | 127]) + size.to_bytes(8, "big")
    return head + MASK + masked_by(payload) if masked else head + payload


def masked_by(payload: bytes) -> bytes:
    """A payload under the mask of all frames here."""
    size = len(payload)
    key = (MASK * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


BYE: Final = Turn(frame(CLOSE, NORMAL.to_bytes(2, "big")))


def _fragments(payload: bytes, size: int, opcode: int = TEXT) -> bytes:
    """One message in frames of so many bytes."""
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    return b"".join(
        frame(opcode if not number else MORE, part, fin=number == len(parts) - 1)
        for number, part in enumerate(parts)
    )


def framing() -> Iterator[Case]:
    """Texts and binaries around every boundary of the length's three forms."""
    for opcode in (TEXT, BINARY):
        for size in (0, 1, 125, 126, 127, 128, 65_535, 65_536):
            yield Case(f"{opcode}: {size}", [Turn(frame(opcode, b"*" * size), 1), BYE])
        yield Case(f"{opcode}: in pieces", [Turn(frame(opcode, b"*" * 65_536), 1), BYE], piece=997)
    yield Case("not masked", [Turn(frame(TEXT, b"hi", masked=False))], PROTOCOL_ERROR)


def pings() -> Iterator[Case]:
    """Pings are answered, too long ones are errors, and a pong that nobody awaits is nothing."""
    for payload in (b"", b"hello", bytes(range(125))):
        yield Case(f"ping of {len(payload)}", [Turn(frame(PING, payload), 1), BYE])
        yield Case(f"by byte {len(payload)}", [Turn(frame(PING, payload), 1), BYE], piece=1)
        yield Case(f"pong of {len(payload)}", [Turn(frame(PONG, payload)), BYE])
    yield Case("too long", [Turn(frame(PING, bytes(126)))], PROTOCOL_ERROR)
    yield Case("in parts", [Turn(frame(PING, b"x", fin=False))], PROTOCOL_ERROR)
    ten = b"".join(frame(PING, b"ping %d" % number) for number in range(10))
    yield Case("ten", [Turn(ten, 10), BYE])


def reserved_bits() -> Iterator[Case]:
    """Bits that no extension has given a meaning to are errors."""
    for bits in range(0x10, 0x80, 0x10):
        for opcode in (TEXT, BINARY, PING, CLOSE):
            data = frame(opcode, b"", bits=bits)
            before = Turn(frame(TEXT, b"before"), 1)
            yield Case(f"bits {bits:x} of {opcode}", [before, Turn(data)], PROTOCOL_ERROR)


def opcodes() -> Iterator[Case]:
    """Opcodes that mean nothing."""
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        for payload in (b"", b"hello"):
            turns = [Turn(frame(TEXT, b"before"), 1), Turn(frame(opcode, payload))]
            yield Case(f"{opcode}: {len(payload)}", turns, PROTOCOL_ERROR)


def fragmentation() -> Iterator[Case]:
    """Messages in parts, with control frames between these, and parts of nothing."""
    start, end = frame(TEXT, b"one", fin=False), frame(MORE, b"two")
    ping = frame(PING, b"?")
    yield Case("two parts", [Turn(start + end, 1), BYE])
    yield Case("two parts, by byte", [Turn(start + end, 1), BYE], piece=1)
    yield Case("a ping between", [Turn(start + ping, 1), Turn(end, 1), BYE])
    many = start + b"".join((frame(MORE, b".", fin=False) + ping) for _ in range(5))
    yield Case("pings between", [Turn(many, 5), Turn(end, 1), BYE])
    yield Case("empty parts", [Turn(frame(TEXT, fin=False) + frame(MORE), 1), BYE])
    yield Case("of nothing", [Turn(end)], PROTOCOL_ERROR)
    yield Case("of nothing, not the last", [Turn(frame(MORE, b"x", fin=False))], PROTOCOL_ERROR)
    yield Case("after the last", [Turn(start + end, 1), Turn(end)], PROTOCOL_ERROR)
    yield Case("a text within", [Turn(start), Turn(frame(TEXT, b"x"))], PROTOCOL_ERROR)
    yield Case("a binary within", [Turn(start), Turn(frame(BINARY, b"x"))], PROTOCOL_ERROR)


_VALID: Final = (
    *("", "κόσμε", "Hello-µ@ßöäüàá-UTF-8!!", "\x00", "\x7f", "\x80", "\u07ff", "\u0800"),
    *("\ud7ff", "\ue000", "\ufffd", "\uffff", "\U00010000", "\U0010ffff", "\U0001f600" * 31),
)
_INVALID: Final = (
    *(b"\x80", b"\xbf", b"\x80\xbf\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc0\xaf", b"\xe0\x80\xaf"),
    *(b"\xf0\x80\x80\xaf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf"),
    *(b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xfe", b"\xff"),
    *(b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", b"\xc3", b"\xe2\x82"),
)


def utf_8() -> Iterator[Case]:
    """Texts that are UTF-8 and texts that are not, in one frame and in several."""
    for text in _VALID:
        payload = text.encode()
        yield Case(f"{text!a}", [Turn(frame(TEXT, payload), 1), BYE])
        if payload:
            yield Case(f"{text!a} by byte", [Turn(_fragments(payload, 1), 1), BYE])
    for payload in _INVALID:
        yield Case(f"{payload!r}", [Turn(frame(TEXT, payload))], INVALID_DATA)
        # Whether that is seen before the last part is the server's choice.
        yield Case(f"{payload!r} by byte", [Turn(_fragments(payload, 1))], INVALID_DATA)
        yield Case(f"{payload!r} as binary", [Turn(frame(BINARY, payload), 1), BYE])


def closing() -> Iterator[Case]:
    """Codes that may be sent and codes that may not, reasons, and what comes after a close."""
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999):
        yield Case(f"{code}", [Turn(frame(CLOSE, code.to_bytes(2, "big")))], code)
    for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535):
        yield Case(f"{code}", [Turn(frame(CLOSE, code.to_bytes(2, "big")))], PROTOCOL_ERROR)
    normal = NORMAL.to_bytes(2, "big")
    yield Case("nothing", [Turn(frame(CLOSE))], 0)
    yield Case("half a code", [Turn(frame(CLOSE, b"\x03"))], PROTOCOL_ERROR)
    yield Case("a reason", [Turn(frame(CLOSE, normal + "genug für heute".encode()))])
    yield Case("a long reason", [Turn(frame(CLOSE, normal + b"*" * 123))])
    yield Case("a longer reason", [Turn(frame(CLOSE, normal + b"*" * 124))], PROTOCOL_ERROR)
    yield Case("no UTF-8", [Turn(frame(CLOSE, normal + b"\xff\xfe"))], INVALID_DATA)
    yield Case("a text after it", [Turn(BYE.data + frame(TEXT, b"more"))])
    yield Case("a ping after it", [Turn(BYE.data + frame(PING, b"?"))])
    yield Case("another after it", [Turn(BYE.data + BYE.data)])
    yield Case("after a text", [Turn(frame(TEXT, b"x" * 300_000), 1), BYE])


def limits() -> Iterator[Case]:
    """Large messages, in one frame and in many, in few pieces and in many; many small ones."""
    large = random.Random(6455).randbytes(1 << 22)
    for size in (1 << 16, 1 << 18, 1 << 20, 1 << 22):
        yield Case(f"one frame of {size}", [Turn(frame(BINARY, large[:size]), 1), BYE])
    for size in (256, 4096, 1 << 16, 1 << 20):
        data = _fragments(large[: 1 << 20], size, BINARY)
        yield Case(f"frames of {size}", [Turn(data, 1), BYE])
    for piece in (256, 4096, 1 << 16):
        turns = [Turn(frame(BINARY, large[: 1 << 19]), 1), BYE]
        yield Case(f"pieces of {piece}", turns, piece=piece)
    for size in (0, 16, 256, 1024):
        messages = b"".join(frame(BINARY, large[at : at + size]) for at in range(500))
        yield Case(f"500 messages of {size}", [Turn(messages, 500), BYE])


def compression() -> Iterator[Case]:
    """permessage-deflate (RFC 7692), with whatever is agreed on."""
    dice = random.Random(7692)
    words = ["limit", "burst", "queue", "Straße", "κόσμε", "route"]
    for offer in (
        "",
        "; client_no_context_takeover",
        "; server_no_context_takeover",
        "; client_no_context_takeover; server_no_context_takeover",
        "; client_max_window_bits=9",
        "; server_max_window_bits=9; client_max_window_bits",
    ):
        bits = 9 if "client_max_window_bits=9" in offer else 12
        for size in (0, 16, 256, 4096, 65_536):
            deflate = zlib.compressobj(wbits=-bits)
            turns = []
            for number in range(8):
                text = json.dumps({"id": number, "text": dice.choices(words, k=size // 16)})
                data = deflate.compress(text.encode()) + deflate.flush(zlib.Z_SYNC_FLUSH)
                turns.append(Turn(frame(TEXT, data[:-4], bits=RSV1), 1))
                if "client_no_context" in offer:
                    deflate = zlib.compressobj(wbits=-bits)
            yield Case(f"{offer} {size}", [*turns, BYE], offer=f"permessage-deflate{offer}")
    offer = "permessage-deflate"
    yield Case("not compressed", [Turn(frame(TEXT, b"plain"), 1), BYE], offer=offer)
    yield Case("RSV2", [Turn(frame(TEXT, b"x", bits=0x20))], PROTOCOL_ERROR, offer)
    yield Case("a ping with RSV1", [Turn(frame(PING, b"x", bits=RSV1))], PROTOCOL_ERROR, offer)


CATEGORIES: Final = {
    "framing": framing,
    "pings": pings,
    "reserved bits": reserved_bits,
    "opcodes": opcodes,
    "fragmentation": fragmentation,
    "UTF-8": utf_8,
    "closing": closing,
    "limits": limits,
    "compression": compression,
}
