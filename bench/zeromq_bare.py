"""The least that a master can be: what it is sent comes back, by the plain sockets of pyzmq.

`python bench/zeromq_bare.py PORT` hears messages at PORT and publishes at the port above the first
and third frame of those whose second one is not `ACCEPTED`.
"""

from __future__ import annotations

import sys

import zmq


def serve(port: int) -> None:
    """Serve until the process ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    heard, said = context.socket(zmq.SUB), context.socket(zmq.PUB)
    heard.subscribe(b"")
    heard.bind(f"tcp://127.0.0.1:{port}")
    said.bind(f"tcp://127.0.0.1:{port + 1}")
    receive = heard.recv
    while True:
        part = receive(copy=False)
        frames = [part.bytes]
        while part.more:
            part = receive(copy=False)
            frames.append(part.bytes)
        if frames[1] != b"ACCEPTED":
            said.send_multipart([frames[0], b"DELAY_UNTIL", frames[2], b"0"])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
