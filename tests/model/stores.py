"""Real servers of each kind, what can be done to them, and what they may lose by it."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import redis

from gateway.base.clock import monotonic_us
from gateway.stores.redis.slots import slot_of
from tests.faketime import SetClock, redis_command
from tests.mariadb import MariaDB
from tests.model.check import Loss
from tests.model.history import Span
from tests.model.limits import KEYS
from tests.servers import ClusterServers, RedisServer, SentinelServers, is_primary, run

FORWARD_S: Final = 3600
BACK_S: Final = -60
AGREE_S: Final = 20.0
"""How long servers may take to agree on a new primary on a busy machine."""

SPLIT_S: Final = 1.0
"""For how long an old primary that was cut off goes on as one."""

Deed = Callable[[int], AbstractContextManager[None]]
"""Does something to a server by number, and ends it."""


class Servers(Protocol):
    """What the tests call servers of one kind."""

    @property
    def url(self) -> str:
        """What a store connects to."""

    def start(self) -> None:
        """Start them."""

    def stop(self) -> None:
        """End them."""


S = TypeVar("S", bound=Servers)


class Store(ABC, Generic[S]):
    """Servers of one kind that gateways share; what is done to them are its methods.

    Args:
        servers: the servers.

    Attributes:
        losses: what they may have lost so far.
    """

    def __init__(self, servers: S) -> None:
        self._servers = servers
        self.losses: list[Loss] = []

    @property
    def url(self) -> str:
        """What a store connects to."""
        return self._servers.url

    def start(self) -> None:
        """Start them."""
        self._servers.start()

    def stop(self) -> None:
        """End them."""
        self._servers.stop()

    @abstractmethod
    def keys_without_end(self) -> int:
        """How many keys would live for ever."""


def deed(owner: object, what: str) -> Deed:
    """What a fault's name stands for, at whom it is done to."""
    done: Deed = getattr(owner, what)
    return done


One = TypeVar("One", bound=RedisServer | MariaDB)


class OneServer(Store[One]):
    """A server whose clock may be one that can be set.

    Args:
        server: the server.
        clock: its clock, if it is not the machine's.
    """

    def __init__(self, server: One, clock: SetClock | None) -> None:
        super().__init__(server)
        self._clock = clock

    @abstractmethod
    def _look_at_clock(self) -> None:
        """Return when the server has seen what its clock shows."""

    @contextmanager
    def frozen(self, _: int) -> Iterator[None]:
        """It stops working, with all connections open."""
        with frozen(self._servers):
            yield

    @contextmanager
    def set_forward(self, _: int) -> Iterator[None]:
        """Its clock is set forward."""
        self._set(FORWARD_S)
        yield

    @contextmanager
    def set_back(self, _: int) -> Iterator[None]:
        """Its clock is set back."""
        self._set(BACK_S)
        yield

    def _set(self, seconds: int) -> None:
        assert self._clock is not None, "its clock is the machine's"
        first = monotonic_us()
        self._clock.step(seconds)
        self._look_at_clock()
        span = Span(first, monotonic_us())
        self.losses.append(Loss("clock", span, forgets_all=True, step_us=seconds * 1_000_000))


class Redis(OneServer[RedisServer]):
    """One Redis server.

    Args:
        folder: where it keeps its files.
        durable: whether each write is on disk before it is answered.
        has_set_clock: whether its clock can be set.
    """

    def __init__(self, folder: Path, *, durable: bool, has_set_clock: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--appendonly", "yes", "--appendfsync", "always") if durable else ()
        clock = SetClock(folder / "clock") if has_set_clock else None
        command = redis_command() if clock else ""
        env = clock.env if clock else None
        super().__init__(RedisServer(folder, options, command=command, env=env), clock)
        self._durable = durable

    def keys_without_end(self) -> int:
        """How many keys would live for ever."""
        return len(self._servers.keys_without_ttl())

    def _look_at_clock(self) -> None:
        run(self._servers, "TIME")

    @contextmanager
    def killed(self, _: int) -> Iterator[None]:
        """A crash; when it is back it knows what is on disk."""
        self._servers.kill()
        first = monotonic_us()
        yield
        last = monotonic_us()
        self._servers.start()
        if not self._durable:
            self.losses.append(Loss("restart", Span(first, last), is_gap=True, forgets_all=True))

    @contextmanager
    def disconnected(self, _: int) -> Iterator[None]:
        """All connections end."""
        disconnect(self._servers)
        yield
        disconnect(self._servers)

    @contextmanager
    def forgotten_scripts(self, _: int) -> Iterator[None]:
        """Scripts are forgotten."""
        run(self._servers, "SCRIPT", "FLUSH")
        yield
        run(self._servers, "SCRIPT", "FLUSH")


class Maria(OneServer[MariaDB]):
    """One MariaDB server with default durability: nothing that was answered is ever lost.

    Args:
        folder: where it keeps its files.
        has_set_clock: whether its clock can be set.
    """

    def __init__(self, folder: Path, *, has_set_clock: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        clock = SetClock(folder / "clock") if has_set_clock else None
        super().__init__(MariaDB(folder / "server", env=clock.env if clock else None), clock)

    def keys_without_end(self) -> int:
        """How many keys would live for ever."""
        query = "SELECT COUNT(*) FROM throttlex_usage WHERE sluice_expires IS NULL"
        return int(self._servers.sql(query)[0][0])

    def _look_at_clock(self) -> None:
        self._servers.sql("SELECT NOW()")

    @contextmanager
    def killed(self, _: int) -> Iterator[None]:
        """A crash."""
        self._servers.kill()
        yield
        self._servers.start()

    @contextmanager
    def disconnected(self, _: int) -> Iterator[None]:
        """All connections end."""
        self._servers.sql("KILL USER gateway@'127.0.0.1'")
        yield
        self._servers.sql("KILL USER gateway@'127.0.0.1'")

    @contextmanager
    def locked(self, _: int) -> Iterator[None]:
        """Somebody holds the rows of all keys locked, and his connection ends with that."""
        with self._servers.holding("SELECT COUNT(*) FROM throttlex_usage FOR UPDATE"):
            yield


class Cluster(Store[ClusterServers]):
    """A Redis Cluster of three primaries and a replica for each.

    Args:
        folder: where the servers keep their files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(ClusterServers(folder, node_timeout_ms=800))

    def keys_without_end(self) -> int:
        """How many keys would live for ever."""
        # A replica shows its keys, and sends whoever asks after one to its primary.
        return sum(len(server.keys_without_ttl()) for server in self._servers.primaries_now())

    @contextmanager
    def isolated(self, number: int) -> Iterator[None]:
        """A primary stops until its replica has taken over, and goes on as if it were one."""
        primary, heir, keys = self._shard(number)
        safe = replicated_at(primary, heir)
        with frozen(primary):
            yield
            _wait(lambda: is_primary(heir))
            thawed = monotonic_us()
        _wait(self._servers.is_whole)
        now = monotonic_us()
        self.losses.append(Loss("split", Span(safe, now), split_us=now - thawed, keys=keys))

    @contextmanager
    def disconnected(self, _: int) -> Iterator[None]:
        """All connections of gateways end."""
        for server in self._servers.servers:
            disconnect(server)
        yield

    @contextmanager
    def failed_over(self, number: int) -> Iterator[None]:
        """A primary is killed, its replica takes over, and it comes back as a replica."""
        primary, heir, keys = self._shard(number)
        safe = replicated_at(primary, heir)
        primary.kill()
        self.losses.append(Loss("failover", Span(safe, monotonic_us()), keys=keys))
        yield
        _wait(lambda: is_primary(heir))
        primary.start()
        _wait(self._servers.is_whole)

    @contextmanager
    def changed_places(self, number: int) -> Iterator[None]:
        """A primary and its replica change places, as they are told: nothing is lost."""
        _, heir, _ = self._shard(number)
        run(heir, "CLUSTER", "FAILOVER")
        yield
        _wait(lambda: is_primary(heir))
        _wait(self._servers.is_whole)

    @contextmanager
    def moved_slot(self, number: int) -> Iterator[None]:
        """The slot of a key moves to another primary, with its keys."""
        slot = slot_of(KEYS[number % len(KEYS)])
        source = self._servers.owner(slot)
        others = [each for each in self._servers.primaries_now() if each is not source]
        target = others[number % len(others)]
        self._servers.begin_move(slot, source, target)
        yield
        # As long as keys are made in it at the source.
        self._servers.move_keys(slot, source, target)
        self._servers.end_move(slot, target)
        _wait(lambda: self._servers.owner(slot) is target)

    def _shard(self, number: int) -> tuple[RedisServer, RedisServer, frozenset[str]]:
        """A primary, its replica, and the identities that live there."""
        primary = self._servers.owner(slot_of(KEYS[number % len(KEYS)]))
        keys = frozenset(key for key in KEYS if self._servers.owner(slot_of(key)) is primary)
        return primary, self._servers.partner(primary), keys


class Sentinel(Store[SentinelServers]):
    """A primary with a replica, watched by three Sentinels.

    Args:
        folder: where the servers keep their files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(SentinelServers(folder))

    def keys_without_end(self) -> int:
        """How many keys would live for ever."""
        return len(self._pair()[0].keys_without_ttl())

    @contextmanager
    def disconnected(self, _: int) -> Iterator[None]:
        """All connections of gateways end."""
        disconnect(self._pair()[0])
        yield

    @contextmanager
    def failed_over(self, _: int) -> Iterator[None]:
        """The primary is killed, its replica takes over, and it comes back as a replica."""
        primary, heir = self._pair()
        safe = replicated_at(primary, heir)
        primary.kill()
        self.losses.append(Loss("failover", Span(safe, monotonic_us())))
        yield
        _wait(lambda: self._servers.primary_port() == heir.port)
        self._calm_down()
        primary.start()
        self._follow(primary, heir)

    @contextmanager
    def isolated(self, _: int) -> Iterator[None]:
        """The primary stops until another has taken its place, and goes on as if it were one."""
        primary, heir = self._pair()
        safe = replicated_at(primary, heir)
        with frozen(primary):
            yield
            _wait(lambda: self._servers.primary_port() == heir.port)
            thawed = monotonic_us()
        # Gateways that are connected to it must leave it by themselves.
        time.sleep(SPLIT_S)
        self._calm_down()
        self._follow(primary, heir)
        now = monotonic_us()
        self.losses.append(Loss("split", Span(safe, now), split_us=now - thawed))

    def _pair(self) -> tuple[RedisServer, RedisServer]:
        """Primary and replica at the moment."""
        port = self._servers.primary_port()
        pair = (self._servers.primary, self._servers.replica)
        return pair if pair[0].port == port else (pair[1], pair[0])

    def _calm_down(self) -> None:
        """Return when the Sentinels do not doubt the new primary.

        At first they do, for a moment, and if there was a replica they would take that instead,
        though it had nothing yet: a loss of their making.
        """
        for _ in range(2):
            _wait(self._servers.are_calm)
            time.sleep(SPLIT_S / 2)

    def _follow(self, server: RedisServer, primary: RedisServer) -> None:
        """Make a server a replica, as the Sentinels do too, but ten seconds later."""
        run(server, "REPLICAOF", "127.0.0.1", primary.port)
        _wait(lambda: b"master_link_status:up" in run(server, "INFO", "replication", raw=True))


@contextmanager
def frozen(server: RedisServer | MariaDB) -> Iterator[None]:
    """Stop a server; it goes on in any case."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def disconnect(server: RedisServer) -> None:
    """End all connections of clients."""
    run(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def replicated_at(primary: RedisServer, heir: RedisServer) -> int:
    """A moment, as late as can be, up to which all that was written has been replicated."""
    with contextlib.closing(primary.client()) as one, contextlib.closing(heir.client()) as other:
        deadline = time.monotonic() + AGREE_S
        while True:
            moment = monotonic_us()
            written = one.info("replication")["master_repl_offset"]
            for _ in range(20):
                if other.info("replication")["slave_repl_offset"] >= written:
                    return moment
                time.sleep(0.001)
            assert time.monotonic() < deadline, "the replica does not follow"


def _wait(condition: Callable[[], bool]) -> None:
    """Return as soon as servers have agreed."""
    deadline = time.monotonic() + AGREE_S
    while True:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        assert time.monotonic() < deadline, "the servers did not agree"
        time.sleep(0.02)


def make(kind: str, folder: Path) -> Store[Any]:
    """The servers of a name in `tests.model.schedule.STORES`."""
    makers: dict[str, Callable[[], Store[Any]]] = {
        "redis": lambda: Redis(folder, durable=True),
        "redis-forgetful": lambda: Redis(folder, durable=False),
        "redis-clock": lambda: Redis(folder, durable=True, has_set_clock=True),
        "mariadb": lambda: Maria(folder),
        "mariadb-clock": lambda: Maria(folder, has_set_clock=True),
        "cluster": lambda: Cluster(folder),
        "sentinel": lambda: Sentinel(folder),
    }
    return makers[kind]()
