"""Answers that are nearly right: those of the table, with some bytes changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st

from tests.wire.answers import ANSWERS, Case

LONGEST: Final = 2000
"""Bytes of an answer that is worth changing: beyond a limit nothing new is to be found."""


def _answers(cases: Mapping[str, Case]) -> list[bytes]:
    scripts = (case.script for case in cases.values())
    found = {b"".join(step for step in script if isinstance(step, bytes)) for script in scripts}
    return sorted(data for data in found if 0 < len(data) <= LONGEST)


_SEEDS: Final = _answers(ANSWERS)
_GOOD: Final = _answers({name: case for name, case in ANSWERS.items() if case.status != 502})
_TELLING: Final = (
    *(bytes([byte]) for byte in b"\r\n\0 \t:;,0159fx\x0b\x7f\x80\xff"),
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n ",
    b"0\r\n\r\n",
    b"\r\nContent-Length: 3",
    b"\r\nContent-Length: 0",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\nConnection: close",
    b"HTTP/1.1 ",
    b"HTTP/1.0 ",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
)


@st.composite
def _changed(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(_GOOD) | st.sampled_from(_SEEDS))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(start + 12, len(data))))
        kind = draw(st.sampled_from(("put", "put", "cut", "twice", "end", "join")))
        if kind == "put":
            data = data[:start] + draw(st.sampled_from(_TELLING)) + data[end:]
        elif kind == "cut":
            data = data[:start] + data[end:]
        elif kind == "twice":
            data = data[:end] + data[start:]
        elif kind == "end":
            data = data[:end]
        else:
            data = data[:start] + draw(st.sampled_from(_SEEDS))
    return data


changed_answers: Final = _changed()
"""Bytes of an upstream."""
