"""What `sluice demo` is made of: its upstream and its configuration."""

from __future__ import annotations

import asyncio
import json
import re

from gateway.command import demo
from gateway.config.checking.load import load


async def _get(url: str, path: str) -> bytes:
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET {path} HTTP/1.1\r\nHost: demo\r\nX-Seen: yes\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_the_upstream_answers_with_what_it_was_asked() -> None:
    """Method, target as sent, headers and the number of requests so far come back as JSON."""
    async with demo.DemoUpstream() as upstream:
        await _get(upstream.url, "/first")
        head, _, body = (await _get(upstream.url, "/a%2Fb?x=1")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    seen = json.loads(body)
    assert (seen["method"], seen["target"]) == ("GET", "/a%2Fb?x=1")
    assert "X-Seen: yes" in seen["headers"]
    assert seen["requests_so_far"] == 2


def test_the_configuration_is_valid_without_a_warning() -> None:
    """The demo's file passes the checker with nothing but the variables that the demo sets."""
    environ = demo.environment("http://127.0.0.1:9000", "127.0.0.1:8085")
    loaded = load(demo.CONFIG, environ)
    assert not loaded.warnings
    assert [str(one) for one in loaded.config.listen] == ["127.0.0.1:8085"]


def test_the_suggestions_ask_for_paths_that_the_demo_routes() -> None:
    """Every path in a suggested command has a route in the configuration."""
    base = "http://127.0.0.1:8080"
    paths = set(re.findall(re.escape(base) + r"(/\w+)", "\n".join(demo.suggestions(base))))
    assert paths
    text = demo.CONFIG.read_text()
    assert all(f"\n  {path}:\n" in text for path in paths)
