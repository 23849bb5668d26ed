"""A small web application to stand behind the gateway: Flask, served by gunicorn.

It answers with what it saw, so that a test compares what a client sent with what arrived.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from flask import Flask, Response, request

app: Final = Flask(__name__)

CONFIRMATION_TIMEOUT_S: Final = 20.0

_confirmations: defaultdict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(0))


@app.get("/ready")
def ready() -> str:
    """Says that the application runs."""
    return "ready"


@app.route("/echo", methods=["GET", "POST", "PUT", "DELETE"])
@app.route("/echo/<path:_rest>", methods=["GET", "POST", "PUT", "DELETE"])
def echo(_rest: str = "") -> dict[str, object]:
    """Tells what arrived."""
    return {
        "method": request.method,
        "target": request.environ["RAW_URI"],
        "headers": list(request.headers.items()),
        "body": request.get_data().decode("latin-1"),
    }


@app.route("/hash", methods=["POST", "PUT"])
def digest() -> dict[str, object]:
    """Tells length and hash of the body."""
    found = hashlib.sha256()
    size = 0
    while block := request.stream.read(1 << 16):
        found.update(block)
        size += len(block)
    return {"size": size, "sha256": found.hexdigest()}


@app.get("/status/<int:status>")
def status(status: int) -> Response:
    """An empty answer with this status."""
    return Response(status=status)


@app.get("/events/<name>")
def events(name: str) -> Response:
    """Server-sent events, each after the one before was confirmed."""
    count = int(request.args["count"])

    def stream() -> Iterator[str]:
        for number in range(count):
            yield f"data: {number}\n\n"
            if not _confirmations[name].acquire(timeout=CONFIRMATION_TIMEOUT_S):
                yield "data: nobody confirmed\n\n"
                return

    return Response(stream(), mimetype="text/event-stream")


@app.post("/events/<name>/confirm")
def confirm(name: str) -> str:
    """Lets the next event go."""
    _confirmations[name].release()
    return "confirmed"
