"""The upstream and the configuration of `sluice demo`.

The upstream responds to every request with what it received, as JSON, so that you can see which
requests were forwarded and what the gateway changed. The configuration is a file beside this
module, ready to read and copy. The gateway itself is not built here.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aiohttp import web

CONFIG: Final = Path(__file__).with_name("demo.yaml")
"""Return the demo's configuration; `environment` has the variables that it needs."""


def environment(upstream: str, listen: str) -> dict[str, str]:
    """Return the variables of `CONFIG`: the upstream's URL and the address to listen on."""
    return {"SLUICE_DEMO_UPSTREAM": upstream, "SLUICE_DEMO_LISTEN": listen}


def suggestions(base: str) -> list[str]:
    """Return commands to try against a gateway at the URL `base`, each after a comment."""
    status = "curl -s -o /dev/null -w '%{http_code} after %{time_total} s\\n'"
    return [
        "# what reaches the upstream, and the headers that report the limit",
        f"curl -i {base}/",
        "# eight requests together: five pass, three are refused with 429",
        f"(for i in 1 2 3 4 5 6 7 8; do {status} {base}/hello & done; wait)",
        "# four together: one passes, three wait for their turns, half a second apart",
        f"(for i in 1 2 3 4; do {status} {base}/patient & done; wait)",
    ]


class DemoUpstream:
    """An HTTP server on a free loopback port that responds with the request it received.

    >>> async with DemoUpstream() as upstream:  # doctest: +SKIP
    ...     upstream.url
    'http://127.0.0.1:49152'
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        seen = {
            "message": "Hello from the upstream.",
            "requests_so_far": next(self._numbers),
            "method": request.method,
            "target": request.raw_path,
            "headers": [f"{name}: {value}" for name, value in request.headers.items()],
            "body_bytes": len(body),
        }
        return web.Response(text=json.dumps(seen, indent=2) + "\n", content_type="application/json")
