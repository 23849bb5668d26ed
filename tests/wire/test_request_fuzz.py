"""Whatever bytes a client sends: an answer or an end, one reading, and no traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import Gateway
from tests.wire.changed_requests import BASES, KINDS, TOKENS, Edit, mutated
from tests.wire.judge import Heard, StrictClient
from tests.wire.origin import OracleOrigin, Seen, read_by_h11

edits = st.lists(
    st.builds(
        Edit,
        kind=st.sampled_from(KINDS),
        at=st.floats(0, 1),
        size=st.integers(1, 30),
        token=st.integers(0, 999),
    ),
    min_size=1,
    max_size=4,
)
streams = st.one_of(
    st.builds(mutated, st.sampled_from(BASES), edits),
    st.lists(st.sampled_from([*TOKENS, *BASES]), min_size=1, max_size=6).map(b"".join),
)


@pytest.fixture(scope="module")
def gateway(origin: OracleOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all examples; a traceback of any of them fails at the end."""
    folder = tmp_path_factory.mktemp("gateway")
    gateway = Gateway.start(f"routes: {{ /**: {{ upstream: {origin.url} }} }}\n", folder)
    yield gateway
    gateway.stop()


def conversation(port: int, sent: bytes, cuts: list[int]) -> list[Heard]:
    """All answers to these bytes, on one connection, until the gateway closes it."""
    borders = sorted(cut % (len(sent) + 1) for cut in cuts)
    answers: list[Heard] = []
    with StrictClient(port) as client:
        with contextlib.suppress(ConnectionError):
            for start, end in zip([0, *borders], [*borders, len(sent)], strict=True):
                client.send(sent[start:end])
            client.end()
        while (heard := client.hear()).status:
            answers.append(heard)
            if not heard.keeps_alive:
                break
        assert client.is_over()
    return answers


def origin_form(method: str, target: str) -> str:
    """A target as it is forwarded."""
    scheme, separator, rest = target.partition("://")
    if not separator or "/" in scheme:
        return target
    cut = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    path = rest[cut:]
    if method == "OPTIONS" and not path:
        # RFC 9112, section 3.2.4.
        return "*"
    return path if path.startswith("/") else f"/{path}"


def is_subsequence(seen: list[Seen], meant: list[Seen]) -> bool:
    """Whether these requests are among those, in this order."""
    rest = iter(meant)
    return all(
        any(
            (each.method, each.target, each.body)
            == (other.method, origin_form(other.method, other.target), other.body)
            for other in rest
        )
        for each in seen
    )


@given(sent=streams, cuts=st.lists(st.integers(0, 999), max_size=4))
def test_any_bytes(gateway: Gateway, origin: OracleOrigin, sent: bytes, cuts: list[int]) -> None:
    """The origin is asked for what is answered by it, each a request that h11 reads there too."""
    answers = conversation(gateway.port, sent, cuts)
    assert all(answer.is_whole for answer in answers)
    seen, _ = origin.take(waits_for_end=True)
    from_origin = [answer.body.decode() for answer in answers if answer.all(b"x-origin")]
    assert from_origin == [each.target for each in seen]
    meant: list[Seen] = []
    with contextlib.suppress(h11.RemoteProtocolError):
        read_by_h11(sent, meant, empty_lines=b"\r\n")
    assert is_subsequence(seen, meant)
