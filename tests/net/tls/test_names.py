"""Which certificate is chosen for which name."""

from __future__ import annotations

import pytest

from gateway.net.tls.names import NameTable

TABLE = NameTable(
    [("a.test", "*.a.test"), ("b.a.test", "a.test"), ("*.test",), ("192.0.2.1", "localhost")]
)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("a.test", 0),
        ("A.TEST.", 0),
        ("b.a.test", 1),
        ("c.a.test", 0),
        ("c.test", 2),
        ("d.c.a.test", None),
        ("test", None),
        ("localhost", 3),
        ("", None),
        (None, None),
        (".a.test", 0),
    ],
)
def test_the_nearest_name_wins(name: str | None, index: int | None) -> None:
    """Exact before wildcard, which is one label; the first of equals; in any case."""
    assert TABLE.find(name) == index
