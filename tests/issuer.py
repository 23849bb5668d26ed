"""An issuer of tokens: a server that publishes its keys, as it is told to."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

import jwt

PATH: Final = "/.well-known/jwks.json"


class Issuer:
    """A server on a free port of loopback.

    Attributes:
        content: what it publishes.
        status: how it answers.
        pause_s: how long it takes to answer.
        asked: how often it was asked.
    """

    def __init__(self, content: bytes = b"", port: int = 0) -> None:
        self.content = content
        self.status = 200
        self.pause_s = 0.0
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                time.sleep(issuer.pause_s)
                self.send_response(issuer.status)
                self.send_header("Location", f"http://127.0.0.1:{issuer.port}/elsewhere")
                self.send_header("Content-Length", str(len(issuer.content)))
                self.end_headers()
                self.wfile.write(issuer.content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Where its keys are."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on; stopping twice is harmless."""
        if not self._thread.is_alive():
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def token_of(claims: object, key: Any, algorithm: str, kid: str | None = None) -> str:
    """A token that is signed with a key."""
    fields = {} if kid is None else {"kid": kid}
    return jwt.api_jws.encode(json.dumps(claims).encode(), key, algorithm, fields)
