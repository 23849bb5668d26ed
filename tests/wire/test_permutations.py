"""Smuggling: no permutation of framing headers hides a request from the one who counts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import h11
import pytest

from tests.processes import Gateway
from tests.wire.origin import OracleOrigin, Seen, read_by_h11
from tests.wire.permutations import VERSIONS, permutations
from tests.wire.test_request_fuzz import conversation, is_subsequence


@pytest.fixture(scope="module")
def gateway(origin: OracleOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all of them; a traceback of any fails at the end."""
    folder = tmp_path_factory.mktemp("gateway")
    gateway = Gateway.start(f"routes: {{ /**: {{ upstream: {origin.url} }} }}\n", folder)
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("version", VERSIONS, ids=bytes.decode)
def test_no_permutation_hides_a_request(
    gateway: Gateway, origin: OracleOrigin, version: bytes
) -> None:
    """What the origin reads, and two parsers with it, is what was answered and what h11 reads."""
    passed = 0
    for sent in permutations(version):
        answers = conversation(gateway.port, sent, [])
        assert all(answer.is_whole for answer in answers), sent
        seen, _ = origin.take(waits_for_end=True)
        from_origin = [answer.body.decode() for answer in answers if answer.all(b"x-origin")]
        assert from_origin == [each.target for each in seen], sent
        meant: list[Seen] = []
        with contextlib.suppress(h11.RemoteProtocolError):
            read_by_h11(sent, meant)
        assert is_subsequence(seen, meant), sent
        passed += bool(seen)
    # Some are only unusual, and are served.
    assert passed > 50
