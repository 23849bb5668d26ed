"""PUB and SUB sockets of ZeroMQ in an event loop, by pyzmq.

`zmq.asyncio` makes a future of every message, at several times the cost; so these are the plain
sockets, asked without waiting. A socket's descriptor says that there may be something to do, once
until everything that can be received was (zmq_getsockopt, ZMQ_FD): a `Subscriber` takes messages
until there are none, a bounded number in each turn of the loop, so that a flood keeps nothing
else from being served. A PUB socket never waits: where a peer is slow or away, it drops.

Whatever is lost on the way is lost, and what comes too fast is dropped at the high-water marks:
that is the nature of PUB and SUB, and the protocols on top know it.
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
"""Messages that are kept for a peer before more are dropped."""
TAKEN_MAX: Final = 1_000
"""Messages that are kept from a peer before it is left to wait: what one can fill memory with."""
MAX_FRAME: Final = 16_384
"""Bytes; who sends a longer frame is disconnected."""
MAX_TOPIC: Final = 1_024
"""The same for those who listen, who send nothing but topics: these are kept, all of them."""
SLICE: Final = 64
"""Messages in one turn of the loop: some hundred microseconds."""
FIRST_RETRY_MS: Final = 100
LONGEST_RETRY_MS: Final = 2_000
"""Pauses between attempts to reach a peer."""
HANDSHAKE_MS: Final = 10_000
"""How long a connection may take until both sides know what the other speaks."""
KEEPALIVE_S: Final = 15
"""A peer whose machine is gone is noticed after twice as long, by the operating system. ZeroMQ's
own heartbeats would end the connections of all peers that speak ZMTP 3.0, as those of Smockron's
time do: they do not answer a PING."""
LEAVE_S: Final = 0.5
"""How long peers that are sent away are waited for; some milliseconds will do."""
BACKLOG: Final = 100
"""Connections that may wait to be taken, as many as with a socket of ZeroMQ's own."""
NOW: Final = int(zmq.NOBLOCK)
NOW_AND_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""As plain numbers; pyzmq's own `send_multipart` joins its enumerations for every frame, and takes
three times as long for it."""

Frames = list[bytes]
Take = Callable[[Sequence[Frames]], None]
"""What is done with messages: those of one turn of the loop."""
NotePeer = Callable[[Peer], None]


class Sockets:
    """The ZeroMQ sockets of one owner; to be made in the process that uses them.

    Args:
        handshake_ms: how long a connection may take to become one.
    """

    def __init__(self, handshake_ms: int = HANDSHAKE_MS) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._sockets: list[zmq.Socket[bytes]] = []
        self._readers: list[Subscriber] = []
        self._handshake_ms = handshake_ms
        self._closer: Closer | None = None
        self._peers: list[Peers] = []

    def publisher(self, *, tells_drops: bool = False) -> Publisher:
        """A new PUB socket.

        Args:
            tells_drops: whether `Publisher.send` says that there is no room for a message. With
                several peers it would be dropped for all of them then.
        """
        socket = self._socket(zmq.PUB, MAX_TOPIC)
        socket.setsockopt(zmq.XPUB_NODROP, int(tells_drops))
        return Publisher(socket)

    def subscriber(self, take: Take, topics: Sequence[bytes]) -> Subscriber:
        """A new SUB socket, which hands messages to `take`."""
        subscriber = Subscriber(self._socket(zmq.SUB, MAX_FRAME), take)
        for topic in topics:
            subscriber.subscribe(topic)
        return subscriber

    def watch(self, end: Publisher | Subscriber, note: Callable[[bool], None]) -> None:
        """Tell `note` whenever the peer that a socket connects to is there, or is away."""

        def take(event: int, descriptor: int) -> None:
            del descriptor
            note(event != zmq.EVENT_DISCONNECTED)

        self._watch(end, int(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED), take)

    def watch_peers(self, end: Publisher | Subscriber, most: int, note: NotePeer) -> None:
        """Let no more than so many peers be connected; to be called before the socket is bound.

        Args:
            end: the socket.
            most: how many there may be; each that comes then is turned away.
            note: is told what becomes of each.
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
        """Close all sockets; what is not on its way yet is lost.

        Peers are sent away before. ZeroMQ 4.3.5 aborts the process if a peer goes while its socket
        is being closed, and the message that was on its way to it has been half sent
        (session_base_t::clean_pipes).
        """
        for peers in self._peers:
            peers.close_all()
        await becomes(lambda: not any(map(len, self._peers)), LEAVE_S)
        for reader in self._readers:
            reader.pause()
        for one in self._sockets:
            one.close(0)
        # It waits for the thread that does the transfer, which may have something to do.
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
    """What both kinds of sockets can do.

    Attributes:
        socket: as pyzmq has it.
        port: that it listens on; 0 for none.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.port = 0

    def listen(self, bound: socket.socket) -> None:
        """Wait for peers at the address of a TCP socket, which belongs to ZeroMQ from now on.

        By itself it would not say which address it cannot have, and have each alone.
        """
        host, self.port, *_ = bound.getsockname()
        bound.listen(BACKLOG)
        self.socket.setsockopt(zmq.USE_FD, bound.detach())
        self.socket.bind(f"tcp://{_bracketed(host)}:{self.port}")
        self.socket.setsockopt(zmq.USE_FD, -1)

    def connect(self, host: str, port: int) -> None:
        """Connect in the background, again and again.

        Names are looked up there as well, for addresses of IPv4.
        """
        # With IPv6 a name would have no other addresses.
        self.socket.setsockopt(zmq.IPV6, int(":" in host))
        self.socket.connect(f"tcp://{_bracketed(host)}:{port}")


class Publisher(_Socket):
    """A PUB socket."""

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send a message to all subscribers, without waiting.

        Returns:
            False if there is no room for it, as far as that is told.
        """
        send, last = self.socket.send, len(frames) - 1
        try:
            for number, frame in enumerate(frames):
                send(frame, NOW_AND_MORE if number < last else NOW)
        except zmq.Again:
            # Of the first frame: ZeroMQ counts whole messages.
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
        """Hear what begins with this."""
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        # That may have taken the sign of a message that has come meanwhile.
        self._wake()

    def start(self) -> None:
        """Read; also after `pause`."""
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._descriptor, self._wake)
            # What is there already makes no sign any more.
            self._wake()

    def pause(self) -> None:
        """Leave messages where they are, until `start`; also for good, before it is closed."""
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
