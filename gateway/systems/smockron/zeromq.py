"""PUB and SUB sockets of ZeroMQ in an event loop, with pyzmq.

`zmq.asyncio` creates a future per message, at several times the cost, so these are plain sockets,
read without waiting. The descriptor of a socket becomes readable once, until everything that can be
received was received (zmq_getsockopt, ZMQ_FD): a `Subscriber` reads messages until there are none,
a bounded number per turn of the loop, so that a flood does not block others. A PUB socket never
waits: it drops messages for a peer that is slow or away.

Messages may be lost in transit, and those that arrive too fast are dropped at the high-water marks.
That is how PUB and SUB work, and the protocols above allow for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from gateway.base.tasks import becomes
from gateway.systems.smockron.zeromq_peers import EVENTS, Closer, Peer, Peers

SENT_MAX: Final = 10_000
"""The most messages that wait for a peer; more are dropped."""
TAKEN_MAX: Final = 1_000
"""The most unread messages of a peer; more wait at the peer. This bounds memory."""
MAX_FRAME: Final = 16_384
"""Bytes; a peer that sends a longer frame is disconnected."""
MAX_TOPIC: Final = 1_024
"""The same for subscribers, which send only topics; all topics are kept."""
SLICE: Final = 64
"""Messages in one turn of the loop: some hundred microseconds."""
FIRST_RETRY_MS: Final = 100
LONGEST_RETRY_MS: Final = 2_000
"""The longest pause between attempts to reach a peer."""
HANDSHAKE_MS: Final = 10_000
"""How long the handshake of a connection may take."""
KEEPALIVE_S: Final = 15
"""The operating system detects a vanished peer after twice this time. ZeroMQ's own heartbeats would
end the connections of peers with ZMTP 3.0, such as Smockron's, which do not answer a PING."""
LEAVE_S: Final = 0.5
"""How long to wait for peers to disconnect; some milliseconds are enough."""
BACKLOG: Final = 100
"""Connections that may wait to be accepted, as for ZeroMQ's own sockets."""
NOW: Final = int(zmq.NOBLOCK)
NOW_AND_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""A plain number; pyzmq's own `send_multipart` combines its enumerations for every frame, and takes
three times as long."""

Frames = list[bytes]
Take = Callable[[Sequence[Frames]], None]
"""Receives the messages of one turn of the loop."""
NotePeer = Callable[[Peer], None]


class Sockets:
    """The ZeroMQ sockets of one owner; create it in the process that uses it.

    Args:
        handshake_ms: how long a handshake may take.
    """

    def __init__(self, handshake_ms: int = HANDSHAKE_MS) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._sockets: list[zmq.Socket[bytes]] = []
        self._readers: list[Subscriber] = []
        self._handshake_ms = handshake_ms
        self._closer: Closer | None = None
        self._peers: list[Peers] = []

    def publisher(self, *, tells_drops: bool = False) -> Publisher:
        """Return a new PUB socket.

        Args:
            tells_drops: whether `Publisher.send` reports that there is no room for a message. With
                several peers, it would then be dropped for all of them.
        """
        socket = self._socket(zmq.PUB, MAX_TOPIC)
        socket.setsockopt(zmq.XPUB_NODROP, int(tells_drops))
        return Publisher(socket)

    def subscriber(self, take: Take, topics: Sequence[bytes]) -> Subscriber:
        """Return a new SUB socket, which passes messages to `take`."""
        subscriber = Subscriber(self._socket(zmq.SUB, MAX_FRAME), take)
        for topic in topics:
            subscriber.subscribe(topic)
        return subscriber

    def watch(self, end: Publisher | Subscriber, note: Callable[[bool], None]) -> None:
        """Call `note` whenever the peer of a connecting socket comes or goes."""

        def take(event: int, descriptor: int) -> None:
            del descriptor
            note(event != zmq.EVENT_DISCONNECTED)

        self._watch(end, int(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED), take)

    def watch_peers(self, end: Publisher | Subscriber, most: int, note: NotePeer) -> None:
        """Bound the number of peers; call this before the socket is bound.

        Args:
            end: the socket.
            most: the most peers; further ones are disconnected.
            note: called when a peer comes, goes or is refused.
        """
        if self._closer is None:
            self._closer = Closer()
        peers = Peers(lambda: end.port, most, note, self._closer)
        self._peers.append(peers)
        self._watch(end, EVENTS, peers.take)

    def _watch(self, end: _Socket, events: int, take: Callable[[int, int], None]) -> None:
        def read(messages: Sequence[Frames]) -> None:
            for frames in messages:
                found = parse_monitor_message(frames)
                take(int(found["event"]), int(found["value"]))

        monitor = end.socket.get_monitor_socket(events)
        self._sockets.append(monitor)
        reader = Subscriber(monitor, read)
        self._readers.append(reader)
        reader.start()

    async def aclose(self) -> None:
        """Close all sockets; messages that were not sent yet are lost.

        Peers are disconnected before. ZeroMQ 4.3.5 aborts the process if a peer leaves while its
        socket is being closed, and a message to it has been half sent
        (session_base_t::clean_pipes).
        """
        for peers in self._peers:
            peers.close_all()
        await becomes(lambda: not any(map(len, self._peers)), LEAVE_S)
        for reader in self._readers:
            reader.pause()
        for one in self._sockets:
            one.close(0)
        # It waits for the I/O thread, which may be busy.
        await asyncio.to_thread(self._context.term)
        if self._closer is not None:
            self._closer.close()
            self._closer = None

    def _socket(self, kind: int, max_frame: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, SENT_MAX),
            (zmq.RCVHWM, TAKEN_MAX),
            (zmq.MAXMSGSIZE, max_frame),
            (zmq.HANDSHAKE_IVL, self._handshake_ms),
            (zmq.RECONNECT_IVL, FIRST_RETRY_MS),
            (zmq.RECONNECT_IVL_MAX, LONGEST_RETRY_MS),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S),
            (zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S),
            (zmq.TCP_MAXRT, KEEPALIVE_S * 1000),
        ):
            socket.setsockopt(option, value)
        self._sockets.append(socket)
        return socket


class _Socket:
    """What both kinds of sockets have in common.

    Attributes:
        socket: the socket of pyzmq.
        port: the port that it listens on; 0 for none.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.port = 0

    def listen(self, bound: socket.socket) -> None:
        """Listen on a bound TCP socket, which belongs to ZeroMQ from now on.

        If ZeroMQ bound the address itself, its error would not name the address, and processes
        could not share it.
        """
        host, self.port, *_ = bound.getsockname()
        bound.listen(BACKLOG)
        self.socket.setsockopt(zmq.USE_FD, bound.detach())
        self.socket.bind(f"tcp://{_bracketed(host)}:{self.port}")
        self.socket.setsockopt(zmq.USE_FD, -1)

    def connect(self, host: str, port: int) -> None:
        """Connect in the background, and reconnect.

        ZeroMQ also resolves the name, to IPv4 addresses.
        """
        # With IPv6 enabled, a name would resolve to IPv6 addresses only.
        self.socket.setsockopt(zmq.IPV6, int(":" in host))
        self.socket.connect(f"tcp://{_bracketed(host)}:{port}")


class Publisher(_Socket):
    """A PUB socket."""

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send a message to all subscribers, without waiting.

        Returns:
            False if there is no room for it and the socket reports this.
        """
        send, last = self.socket.send, len(frames) - 1
        try:
            for number, frame in enumerate(frames):
                send(frame, NOW_AND_MORE if number < last else NOW)
        except zmq.Again:
            # Only for the first frame: ZeroMQ counts whole messages.
            return False
        return True


class Subscriber(_Socket):
    """A SUB socket that is read in the event loop."""

    def __init__(self, socket: zmq.Socket[bytes], take: Take) -> None:
        super().__init__(socket)
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._descriptor = socket.fileno()
        self._soon: asyncio.Handle | None = None
        self._is_reading = False

    def subscribe(self, topic: bytes) -> None:
        """Receive messages that begin with this."""
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        # That may have consumed the signal of a message that arrived meanwhile.
        self._wake()

    def start(self) -> None:
        """Start to read; also after `pause`."""
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._wake)
            # Messages that are already there raise no signal.
            self._wake()

    def pause(self) -> None:
        """Stop reading until `start`, or before the socket is closed."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _wake(self) -> None:
        if self._soon is None and self._is_reading:
            self._soon = self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._soon = None
        messages: list[Frames] = []
        receive = self.socket.recv
        try:
            while len(messages) < SLICE:
                part = receive(NOW, copy=False)
                frames = [part.bytes]
                while part.more:
                    part = receive(NOW, copy=False)
                    frames.append(part.bytes)
                messages.append(frames)
        except zmq.Again:
            pass
        else:
            self._wake()
        if messages:
            self._take(messages)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
