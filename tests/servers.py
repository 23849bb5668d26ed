"""Real Redis servers for the tests: started on a free port, killed, frozen and restarted.

Alone, with Sentinels that watch a primary and its replica, or as a Cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import OwnServer, ServerProcess, free_port

WAIT_S: Final = 30.0
COMMANDS: Final = ("redis-server", "valkey-server")


def _server_command() -> str:
    """The server named by the environment, or the first one installed."""
    for command in (os.environ.get("REDIS_SERVER", ""), *COMMANDS):
        if command and (found := shutil.which(command)):
            return found
    raise FileNotFoundError(f"none of {COMMANDS} is installed, and REDIS_SERVER names none")


async def until(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Return as soon as something is true, and fail if it does not become so."""
    async with asyncio.timeout(within_s):
        # What is waited for happens in other processes, which set no event here.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def becomes(
    look: Callable[[], Awaitable[object]], wanted: object, within_s: float = WAIT_S
) -> None:
    """Look until this is what is seen, and fail if that does not come about."""
    async with asyncio.timeout(within_s):
        # As for `until`.
        while await look() != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Certificate(NamedTuple):
    """For 127.0.0.1, signed by itself."""

    key: Path
    file: Path

    @classmethod
    def make(cls, folder: Path) -> Certificate:
        """Write a new one into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        key, file = folder / "key.pem", folder / "cert.pem"
        command = shutil.which("openssl")
        assert command, "openssl makes the certificates of tests"
        subprocess.run(
            [
                *(command, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-nodes", "-keyout", str(key), "-out", str(file), "-days", "2"),
                *("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
        return cls(key, file)


class RedisServer(OwnServer):
    """A Redis or Valkey server of a test's own, without persistence.

    Args:
        folder: its working directory; made if it is not there.
        options: words of its configuration, such as `"--maxmemory", "2mb"`.
        password: what clients must know; none if empty.
        command: the server's program; empty for the one that is installed.
        config: a file of options to begin with; a server that keeps its state there writes it.
        tls: key and certificate, if it speaks TLS and nothing else.
        env: variables added to the test's own.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        password: str = "",
        command: str = "",
        config: Path | None = None,
        tls: Certificate | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._options = tuple(options)
        self._password = password
        self._command = command
        self._config = () if config is None else (str(config),)
        self._tls = tls
        self._env = env

    @property
    def url(self) -> str:
        """What a store connects to."""
        credentials = f":{self._password}@" if self._password else ""
        if self._tls is not None:
            return f"rediss://{credentials}127.0.0.1:{self.port}/0?ssl_ca_certs={self._tls.file}"
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    def option(self, name: str) -> str:
        """The value of one of its options."""
        return self._options[self._options.index(name) + 1]

    def client(self) -> redis.Redis:
        """A client for looking and meddling; answers are bytes."""
        return redis.Redis(
            protocol=2,
            host="127.0.0.1",
            port=self.port,
            password=self._password or None,
            ssl=self._tls is not None,
            # Who is asked is known.
            ssl_cert_reqs="none",
            ssl_check_hostname=False,
            # What the server says now is what a test wants to know, however busy the machine is.
            retry=Retry(NoBackoff(), 0),
            socket_timeout=WAIT_S,
        )

    def start(self, *, is_loading_enough: bool = False) -> None:
        """Start, and return when commands are answered, or at least refused for loading."""
        auth = ("--requirepass", self._password) if self._password else ()
        argv = [
            *(
                self._command or _server_command(),
                *self._config,
                *self._ports(),
                "--bind",
                "127.0.0.1",
            ),
            *("--save", "", "--appendonly", "no", "--dir", str(self._folder)),
            *auth,
            *self._options,
        ]

        def is_ready() -> bool:
            try:
                with contextlib.closing(self.client()) as client:
                    answer: Any = client.ping()
                    return bool(answer)
            except redis.BusyLoadingError:
                return is_loading_enough
            except redis.RedisError:
                return False

        self._starts += 1
        name = f"redis-{self._starts}"
        self._process = ServerProcess(name, argv, self._folder, is_ready, self._env)

    def _ports(self) -> tuple[str, ...]:
        if self._tls is None:
            return ("--port", str(self.port))
        return (
            *("--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"),
            *("--tls-key-file", str(self._tls.key), "--tls-cert-file", str(self._tls.file)),
            *("--tls-ca-cert-file", str(self._tls.file), "--tls-replication", "yes"),
        )

    def restart(self) -> None:
        """Start anew, empty, on the same port."""
        self.stop()
        self.start()

    def keys_without_ttl(self) -> list[bytes]:
        """Keys that would live for ever."""
        with contextlib.closing(self.client()) as client:
            keys: list[bytes] = list(client.scan_iter(count=1000))
            return [key for key in keys if client.pttl(key) == -1]


class SentinelServers:
    """A primary, a replica, and three Sentinels that watch them.

    Args:
        folder: where they keep their files.
        down_after_ms: when a server that is silent counts as down.
        sentinel_password: what the Sentinels want to know.
        tls: key and certificate, if all of them speak TLS and nothing else.
    """

    SERVICE = "counts"

    def __init__(
        self,
        folder: Path,
        down_after_ms: int = 400,
        sentinel_password: str = "",
        tls: Certificate | None = None,
    ) -> None:
        self._folder = folder
        self._down_after_ms = down_after_ms
        self._sentinel_password = sentinel_password
        self._tls = tls
        at_once = ("--repl-diskless-sync-delay", "0")
        self.primary = RedisServer(folder / "primary", at_once, tls=tls)
        replication = ("--replicaof", f"127.0.0.1 {self.primary.port}")
        self.replica = RedisServer(folder / "replica", replication, tls=tls)
        self.sentinels: list[RedisServer] = []

    @property
    def url(self) -> str:
        """What a store connects to."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        scheme, option = "redis", ""
        if self._tls is not None:
            scheme, option = "rediss", f"?ssl_ca_certs={self._tls.file}"
        elif self._sentinel_password:
            option = f"?sentinel_password={self._sentinel_password}"
        return f"{scheme}+sentinel://{hosts}/{self.SERVICE}{option}"

    def start(self) -> None:
        """Start, and return when every Sentinel knows the others and the replica."""
        self.primary.start()
        self.replica.start()
        # Sentinels look for replicas every ten seconds only: there must be one at the first look.
        _wait_for(lambda: b"master_link_status:up" in run(self.replica, "INFO", raw=True))
        for number in range(3):
            folder = self._folder / f"sentinel-{number}"
            config = folder / "sentinel.conf"
            password = self._sentinel_password
            server = RedisServer(folder, ("--sentinel",), password, config=config, tls=self._tls)
            self.sentinels.append(server)
        for number, server in enumerate(self.sentinels):
            config = self._folder / f"sentinel-{number}" / "sentinel.conf"
            config.write_text(self._sentinel_config(number))
            server.start()
        _wait_for(lambda: all(map(self._knows_all, self.sentinels)))

    def stop(self) -> None:
        """End all of them."""
        for server in (*self.sentinels, self.primary, self.replica):
            server.stop()

    def primary_port(self) -> int:
        """Where the Sentinels say that the primary is; 0 if they do not agree."""
        named = {self._master(sentinel)["port"] for sentinel in self.sentinels}
        return int(named.pop()) if len(named) == 1 else 0

    def are_calm(self) -> bool:
        """Whether every Sentinel finds that the primary is up, and changes nothing."""
        return {self._master(sentinel)["flags"] for sentinel in self.sentinels} == {"master"}

    def _sentinel_config(self, number: int) -> str:
        """What a Sentinel is to know; the others too, which it would find within seconds."""
        name = self.SERVICE
        lines = [
            f"myid {_sentinel_id(number)}",
            f"monitor {name} 127.0.0.1 {self.primary.port} 2",
            f"down-after-milliseconds {name} {self._down_after_ms}",
            f"failover-timeout {name} 2000",
            f"known-replica {name} 127.0.0.1 {self.replica.port}",
        ]
        if self._sentinel_password:
            lines.append(f"sentinel-pass {self._sentinel_password}")
        lines += [
            f"known-sentinel {name} 127.0.0.1 {other.port} {_sentinel_id(at)}"
            for at, other in enumerate(self.sentinels)
            if at != number
        ]
        return "".join(f"sentinel {line}\n" for line in lines)

    def _master(self, sentinel: RedisServer) -> dict[str, str]:
        words = [
            word.decode() for word in run(sentinel, "SENTINEL", "MASTER", self.SERVICE, raw=True)
        ]
        return dict(zip(words[::2], words[1::2], strict=True))

    def _knows_all(self, sentinel: RedisServer) -> bool:
        master = self._master(sentinel)
        others = int(master.get("num-other-sentinels", 0))
        return others == 2 and int(master.get("num-slaves", 0)) == 1


def _sentinel_id(number: int) -> str:
    return f"{number + 1:040x}"


class ClusterServers:
    """A Redis Cluster of three primaries, each with a replica or without.

    Args:
        folder: where the servers keep their files.
        replicas: whether there is one for each primary.
        command: the servers' program; empty for the one that is installed.
        tls: key and certificate, if they speak TLS and nothing else.
        node_timeout_ms: when a server that is silent counts as down, and its replica takes over;
            longer than a machine may hold it up, unless a test waits for that.
    """

    SLOTS = 16384

    def __init__(
        self,
        folder: Path,
        *,
        replicas: bool = True,
        command: str = "",
        tls: Certificate | None = None,
        node_timeout_ms: int = 10_000,
    ) -> None:
        self._tls = tls
        self.servers = [
            RedisServer(
                folder / f"node-{number}",
                (
                    *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
                    *("--cluster-node-timeout", str(node_timeout_ms)),
                    *("--cluster-allow-replica-migration", "no"),
                    *("--cluster-require-full-coverage", "no"),
                    *("--cluster-replica-validity-factor", "0"),
                    *("--repl-diskless-sync-delay", "0"),
                    *(("--tls-cluster", "yes") if tls is not None else ()),
                ),
                command=command,
                tls=tls,
            )
            for number in range(6 if replicas else 3)
        ]
        self.primaries = self.servers[:3]

    @property
    def url(self) -> str:
        """What a store connects to."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:2])
        if self._tls is not None:
            return f"rediss+cluster://{hosts}?ssl_ca_certs={self._tls.file}"
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        """Start, and return when every node finds the Cluster whole and replicas follow."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        for server in self.servers:
            server.start()
        first = self.servers[0]
        for number, server in enumerate(self.servers):
            run(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            run(first, "CLUSTER", "MEET", "127.0.0.1", server.port, server.option("--cluster-port"))
        bounds = [number * self.SLOTS // 3 for number in range(4)]
        for server, begin, end in zip(self.primaries, bounds, bounds[1:], strict=False):
            run(server, "CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        _wait_for(lambda: all(self._sees_all(server) for server in self.servers))
        for server, primary in zip(self.servers[3:], self.primaries, strict=False):
            run(server, "CLUSTER", "REPLICATE", self.id_of(primary))
        _wait_for(self.is_whole)

    def stop(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.stop()

    def flush(self) -> None:
        """Forget all keys."""
        for server in self.primaries_now():
            run(server, "FLUSHALL")

    def id_of(self, server: RedisServer) -> str:
        """The name of a node within the Cluster."""
        name: bytes = run(server, "CLUSTER", "MYID", raw=True)
        return name.decode()

    def owner(self, slot: int, asked: int = 0) -> RedisServer:
        """Who serves a slot, as one of the nodes knows it."""
        for first, last, primary, *_ in run(self.servers[asked], "CLUSTER", "SLOTS", raw=True):
            if first <= slot <= last:
                return next(each for each in self.servers if each.port == primary[1])
        raise AssertionError(f"nobody serves slot {slot}")

    def move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move a slot with its keys."""
        self.begin_move(slot, source, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, target)

    def begin_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Begin to move a slot."""
        run(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        run(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move the keys of a slot that are at the source."""
        keys = run(source, "CLUSTER", "GETKEYSINSLOT", slot, 1000, raw=True)
        if keys:
            run(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)

    def end_move(self, slot: int, target: RedisServer) -> None:
        """Say who has the slot from now on."""
        for server in (target, *self.primaries_now()):
            run(server, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def primaries_now(self) -> list[RedisServer]:
        """The servers that say they are primaries; failovers change them."""
        return [server for server in self.servers if server.is_running and is_primary(server)]

    def partner(self, server: RedisServer) -> RedisServer:
        """The other one of a primary and its replica, whichever is which."""
        return self.servers[(self.servers.index(server) + 3) % 6]

    def is_whole(self) -> bool:
        """Whether every node finds the Cluster whole and replicas follow."""
        return all(self._is_whole(server) for server in self.servers)

    def _sees_all(self, server: RedisServer) -> bool:
        info: bytes = run(server, "CLUSTER", "INFO", raw=True)
        known = f"cluster_known_nodes:{len(self.servers)}\r".encode()
        return known in info and b"cluster_state:ok" in info and b"_assigned:16384" in info

    def _is_whole(self, server: RedisServer) -> bool:
        nodes: bytes = run(server, "CLUSTER", "NODES", raw=True)
        info: bytes = run(server, "INFO", "replication", raw=True)
        is_linked = b"role:master" in info or b"master_link_status:up" in info
        return is_linked and nodes.count(b" slave ") + nodes.count(b",slave ") == (
            len(self.servers) - 3
        )


def run(server: RedisServer, *command: Any, raw: bool = False) -> Any:
    """Run a command on a server; `raw` answers are not made into something by redis-py."""
    with contextlib.closing(server.client()) as client:
        if raw:
            client.response_callbacks.clear()
        try:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]  # its stub
        except redis.ConnectionError:
            server.revive()
            raise


def is_primary(server: RedisServer) -> bool:
    """Whether a server says that it is one."""
    return b"role:master" in run(server, "INFO", "replication", raw=True)


async def replicated(primary: RedisServer, replica: RedisServer) -> None:
    """Return when a replica has heard of all that was written so far.

    WAIT would not do: it knows of the writes of its own connection only.
    """
    written: int = run(primary, "INFO", "replication")["master_repl_offset"]
    await until(lambda: run(replica, "INFO", "replication")["slave_repl_offset"] >= written)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the servers did not find together"
        time.sleep(0.02)
