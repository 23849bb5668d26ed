"""How the host of a request is read."""

from __future__ import annotations

import pytest

from gateway.base.errors import BadRequestError
from gateway.routing.host import normal_host


@pytest.mark.parametrize(
    "raw", ["a.test", "A.TEST", "a.test:80", "a.test.", "a.test:", "a.TEST.:8080", "a.test:65535"]
)
def test_all_spellings_of_a_host_are_one(raw: str) -> None:
    """Case, port and the trailing dot of the root do not make another host."""
    assert normal_host(raw) == "a.test"


@pytest.mark.parametrize(
    ("raw", "host"),
    [
        ("[::1]", "[::1]"),
        ("[0:0:0:0:0:0:0:1]:443", "[::1]"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("my_service", "my_service"),
        ("xn--caf-dma.test", "xn--caf-dma.test"),
    ],
)
def test_addresses_and_service_names_are_hosts(raw: str, host: str) -> None:
    """IPv6 is compared in its shortest form; underscores are allowed."""
    assert normal_host(raw) == host


@pytest.mark.parametrize(
    "raw",
    [
        "",
        ".",
        ".a",
        "a..b",
        "a.test..",
        "a.test, b.test",
        "a.test/x",
        "a b",
        " a.test",
        "a.test\n",
        "a.test:99999",
        "a.test:8o",
        "a.test:80:80",
        "a.test:\u0661",
        "[::1",
        "::1",
        "[::1]x",
        "[1.2.3.4]",
        "[fe80::1%25eth0]",
        "a.test\x02",
        "user@a.test",
        "*.a.test",
        "caf\xe9.test",
        "a%2etest",
        "a" * 64,
        ".".join(["a" * 63] * 4),
    ],
)
def test_what_is_no_host_is_refused(raw: str) -> None:
    """An empty or malformed Host is a 400."""
    with pytest.raises(BadRequestError) as refusal:
        normal_host(raw)
    assert refusal.value.status == 400
