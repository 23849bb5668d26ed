"""Real MariaDB servers for the tests: made in a folder, started, killed, frozen, restarted.

With `MYSQLD` in the environment, the words of a command such as `/usr/sbin/mysqld`, the servers
are MySQL.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.processes import OwnServer, ServerProcess

DATABASE: Final = "sluice"
USER: Final = "gateway"
PASSWORD: Final = "s3cret/word"
MYSQLD: Final = shlex.split(os.environ.get("MYSQLD", ""))
_OF_MYSQL: Final = ("--mysqlx=OFF", "--secure-file-priv=NULL") if MYSQLD else ()


def _command(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    assert found, f"{name} is not installed"
    return found


class MariaDB(OwnServer):
    """A server of a test's own, with default durability.

    Args:
        folder: where its data, socket and logs are; made if it is not there.
        options: words of its command line, such as `"--max-connections=3"`.
        env: variables added to the test's own.
    """

    def __init__(
        self, folder: Path, options: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._folder = folder
        self._data = folder / "data"
        # Of its own: a server that starts removes all temporary tables in there, and another one
        # that was using some of them would be killed by that.
        self._temporary = folder / "tmp"
        self._options = tuple(options)
        self._env = env
        # A socket's path is short by law, a test's folder is not.
        self.socket = Path(tempfile.gettempdir()) / f"sluice-mariadb-{self.port}.sock"
        self._make()

    def _make(self) -> None:
        """An empty data folder, once for each run of this server."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if MYSQLD:
            argv = [*MYSQLD, "--no-defaults", f"--datadir={self._data}", "--initialize-insecure"]
        else:
            argv = [_command("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}"]
            argv += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        self._temporary.mkdir(exist_ok=True)
        subprocess.run(
            [*argv, *_as_user(), *(each for each in self._options if "page-size" in each)],
            check=True,
            capture_output=True,
            env={**os.environ, "TMPDIR": str(self._temporary)},
        )

    @property
    def url(self) -> str:
        """What a store connects to."""
        return f"mysql://{USER}:s3cret%2Fword@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        """Start, and return when statements are answered."""
        self._starts += 1
        argv = [
            *(MYSQLD or [_command("mariadbd")]),
            *("--no-defaults", f"--datadir={self._data}", f"--tmpdir={self._temporary}"),
            *_OF_MYSQL,
            *(f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.socket}"),
            *("--innodb-buffer-pool-size=64M", "--skip-log-bin", *_as_user(), *self._options),
        ]
        name = f"mariadb-{self._starts}"
        self._process = ServerProcess(name, argv, self._folder, self._is_ready, self._env)
        self.sql(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};"
            f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';"
            f"GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1'",
            database="",
        )

    def _is_ready(self) -> bool:
        return self._client("SELECT 1", "").returncode == 0

    def _words(self, database: str) -> list[str]:
        """The command of a client that is the administrator.

        Its socket is nobody else's, and since MariaDB 11.4 it would not believe our certificates.
        """
        return [
            *(_command("mariadb"), "--no-defaults", "--user=root", "--batch", "--raw"),
            *("--skip-column-names", "--skip-ssl", f"--socket={self.socket}", database),
        ]

    def _client(self, statements: str, database: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(database),
            input=statements,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def sql(self, statements: str, database: str = DATABASE) -> list[tuple[str, ...]]:
        """Run statements as the administrator; the rows of what they answer, as text."""
        done = self._client(statements, database)
        if done.returncode:
            self.revive()
        assert done.returncode == 0, done.stderr
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]

    @contextlib.contextmanager
    def holding(self, statement: str) -> Iterator[None]:
        """Somebody's transaction that has locked what a query with one answer asks for."""
        shell = subprocess.Popen(
            [*self._words(DATABASE), "--unbuffered"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with shell:
            assert shell.stdin is not None and shell.stdout is not None  # noqa: PT018 - pipes
            shell.stdin.write(f"BEGIN; {statement};\n")
            shell.stdin.flush()
            shell.stdout.readline()
            yield
            # What it had begun is rolled back with its connection.
            shell.kill()

    def empty(self) -> None:
        """Forget all counts."""
        tables = self.sql(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema='{DATABASE}'"
            " AND table_name <> 'sluice_schema'"
        )
        self.sql(";".join(f"DELETE FROM {name}" for (name,) in tables))

    def kill(self) -> None:
        """End at once, as a crash would."""
        super().kill()
        self.socket.unlink(missing_ok=True)


def _as_user() -> tuple[str, ...]:
    """The server refuses to run as root unless that is said."""
    return ("--user=root",) if os.geteuid() == 0 else ()
