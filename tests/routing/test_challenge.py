"""What a 401 asks for."""

from __future__ import annotations

import pytest

from gateway.routing.challenge import challenge_fields


@pytest.mark.parametrize(
    ("words", "challenges"),
    [
        (["header:authorization"], ['Bearer realm="shop"']),
        (["header:x-key"], ['ApiKey realm="shop", in="header", name="x-key"']),
        (["ip", "cookie:sid"], ['ApiKey realm="shop", in="cookie", name="sid"']),
        (['query:a"\\'], [r'ApiKey realm="shop", in="query", name="a\"\\"']),
        (["json:user.id"], ['ApiKey realm="shop", in="body", name="user.id"']),
        (["form:user"], ['ApiKey realm="shop", in="formData", name="user"']),
        (["client_cert"], ['ClientCertificate realm="shop"']),
        (["client_cert:san", "client_cert:fingerprint"], ['ClientCertificate realm="shop"']),
        (
            ["header:authorization", "route", "header:x-key"],
            ['Bearer realm="shop"', 'ApiKey realm="shop", in="header", name="x-key"'],
        ),
        (["ip"], ['ApiKey realm="shop"']),
    ],
)
def test_each_kind_of_credentials_has_its_challenge(
    words: list[str], challenges: list[str]
) -> None:
    """One line each, and always at least one: a 401 without is not valid."""
    lines = "".join(f"WWW-Authenticate: {one}\r\n" for one in challenges)
    assert challenge_fields(words, "shop") == lines.encode()
