"""A target of an upstream: a small server that is killed, stopped, and told to fail.

Run as `python -m tests.e2e.target PORT`. It answers every GET with its port, /healthz with
`well`, and after /say/503 everything but /healthz and /say with that status.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Target(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_GET(self) -> None:
        """Answer with the port, or do as told."""
        if self.path.startswith("/say/"):
            Target.status = int(self.path.removeprefix("/say/"))
        is_asked = self.path.startswith(("/say/", "/healthz"))
        body = sys.argv[1].encode()
        self.send_response(200 if is_asked else Target.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Say nothing: what a test wants to know is counted elsewhere."""


class Server(ThreadingHTTPServer):
    """One that writes each answer at once."""

    disable_nagle_algorithm = True
    request_queue_size = 128


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Target).serve_forever()
