"""The Dockerfile's steps, without Docker: on what its build is given, in folders of the test."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.processes import ServerProcess, answers, free_port

ROOT: Final = Path(__file__).parent.parent
NOT_LOOKED_INTO: Final = {".git", ".venv", "node_modules"}
"""Folders of many files, of which none is named in .dockerignore."""
FOLDERS: Final = re.compile(r"(?<![\w.~-])/(?:build|dist|opt|src)\b")
"""Where the image puts things; in the test, below a folder of its own."""
NEEDS_DOCKER: Final = ("useradd",)
"""What would change this machine."""


class Pattern(NamedTuple):
    """A line of a .dockerignore.

    Attributes:
        keeps: whether it begins with `!`.
        path: what it matches; what is below that is matched as well.
    """

    keeps: bool
    path: re.Pattern[str]


def read_patterns(text: str) -> list[Pattern]:
    """The lines of a .dockerignore: as in Go's `filepath.Match`, and `**` for any folders."""
    patterns = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        keeps = line.startswith("!")
        pieces = re.split(r"(\*\*/?|\*|\?)", line.removeprefix("!").strip("/"))
        jokers = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
        path = "".join(jokers.get(piece, re.escape(piece)) for piece in pieces)
        patterns.append(Pattern(keeps, re.compile(f"{path}(?:/.*)?", re.DOTALL)))
    return patterns


def is_sent(path: str, patterns: list[Pattern]) -> bool:
    """Whether the build is given a file: the last line that matches it says so."""
    sent = True
    for pattern in patterns:
        if pattern.path.fullmatch(path):
            sent = pattern.keeps
    return sent


def send_context(folder: Path) -> None:
    """Copy what `docker build .` is given."""
    patterns = read_patterns((ROOT / ".dockerignore").read_text())
    for place, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_LOOKED_INTO]
        for name in files:
            source = Path(place, name)
            path = source.relative_to(ROOT)
            if is_sent(path.as_posix(), patterns):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, folder / path)


def compile_only(module: str, pyproject: Path) -> None:
    """Let one module be compiled, since all of them take minutes; `make test-compiled` does."""
    before, _, rest = pyproject.read_text().partition("[tool.sluice.compiled]")
    rest = rest.partition("\n[tool.ruff]")[2]
    table = f'[tool.sluice.compiled]\ninclude = ["{module}"]\nexclude = []\n'
    pyproject.write_text(f"{before}{table}\n[tool.ruff]{rest}")


def instructions() -> Iterator[tuple[str, str]]:
    """Each instruction of the Dockerfile, with what follows it."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    for line in text.replace("\\\n", "").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


class Build:
    """What the steps of the Dockerfile lead to.

    Args:
        root: takes the place of the image's root.
        context: what the build is given.

    Attributes:
        said: the last words of each instruction that says what is to be run.
    """

    def __init__(self, root: Path, context: Path) -> None:
        self._root = root
        self._context = context
        self._folder = root
        self.said: dict[str, list[str]] = {}
        programs = root / "usr" / "bin"
        programs.mkdir(parents=True)
        python = programs / "python"
        python.write_text(_python())
        python.chmod(0o755)
        self._env = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
        # From where packages come is the machine's affair.
        self._env |= {name: value for name, value in os.environ.items() if name[:4] == "PIP_"}

    def here(self, text: str) -> str:
        """The same, with the image's folders below the test's."""
        return FOLDERS.sub(lambda match: f"{self._root}{match[0]}", text)

    def do(self, word: str, rest: str) -> None:
        """Carry out one instruction."""
        match word:
            case "ENV":
                for name, value in (each.split("=", 1) for each in shlex.split(rest)):
                    self._env[name] = self.here(value).replace("$PATH", self._env["PATH"])
                # The test may be run often.
                self._env.pop("PIP_NO_CACHE_DIR", None)
            case "WORKDIR":
                self._folder = Path(self.here(rest))
                self._folder.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(rest)
            case "RUN" if not rest.startswith(NEEDS_DOCKER):
                self.run(["bash", "-euo", "pipefail", "-c", self.here(rest)])
            case "HEALTHCHECK":
                self.said[word] = json.loads(rest.partition("CMD")[2])
            case "ENTRYPOINT" | "CMD":
                self.said[word] = json.loads(rest)

    def _copy(self, rest: str) -> None:
        if rest.startswith("--from="):
            # An environment cannot be moved; it is where it will be.
            assert all(Path(self.here(path)).exists() for path in rest.split()[1:])
            return
        *sources, target = rest.split()
        for source in sources:
            found = self._context / source
            assert found.exists(), f"COPY {rest}: .dockerignore keeps it out"
            if found.is_dir():
                shutil.copytree(found, self._folder / target, dirs_exist_ok=True)
            else:
                shutil.copy(found, self._folder / target)

    def run(self, command: list[str]) -> str:
        """What a command prints, which must end well."""
        done = subprocess.run(
            command, cwd=self._folder, env=self._env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def find(self, program: str) -> str:
        """The path of a program, as the image's PATH has it."""
        found = shutil.which(program, path=self._env["PATH"])
        assert found, f"{program} is not in PATH"
        return found

    @property
    def env(self) -> Mapping[str, str]:
        """Of what runs in the image."""
        return self._env


def _python() -> str:
    """A script that is the Python of these tests; Debian's may lack `ensurepip` (python3-venv)."""
    python = shlex.quote(sys.executable)
    return f"""#!/bin/bash
if [[ $1 == -m && $2 == venv && $3 != --* ]] && ! {python} -c 'import ensurepip' 2>/dev/null; then
    {python} -m venv --without-pip "$3" && {python} -m pip --python "$3/bin/python" install -q pip
else
    exec {python} "$@"
fi
"""


@pytest.mark.parametrize(
    ("lines", "path", "sent"),
    [
        ("*", "a", False),
        ("*\n!a", "a/b", True),
        ("*\n!a\na/b", "a/b/c", False),
        ("*\n!a/b.txt", "a/c.txt", False),
        ("*\n!a/b.txt", "a/b.txt", True),
        ("**/x", "a/b/x/c", False),
        ("**/x", "x", False),
        ("x", "a/x", True),
        ("# a\n\n a? ", "ab", False),
        ("*.pyc", "a/b.pyc", True),
        ("**/*.pyc", "a/b.pyc", False),
    ],
)
def test_ignored_files_are_those_that_docker_ignores(lines: str, path: str, sent: bool) -> None:
    """As in Docker's reference: the last matching line wins, `**` is any number of folders."""
    assert is_sent(path, read_patterns(lines)) == sent


@pytest.mark.timeout(600)
def test_the_image_can_be_built_and_runs(tmp_path: Path) -> None:
    """From the files that .dockerignore admits; it answers, and its health check passes."""
    context = tmp_path / "context"
    send_context(context)
    assert not list(context.glob("**/__pycache__"))
    compile_only("base/build.py", context / "pyproject.toml")
    build = Build(tmp_path / "root", context)
    for word, rest in instructions():
        build.do(word, rest)

    said = build.said
    assert said["HEALTHCHECK"] == ["sluice", "healthcheck"]
    port, admin = free_port(), free_port()
    config = tmp_path / "sluice.yaml"
    config.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\n"
        "routes: {/**: {upstream: http://127.0.0.1:9, limit: 10/s}}\n"
        "store: mysql://nobody@127.0.0.1:9/none\n"
    )
    words = [*said["ENTRYPOINT"], *said["CMD"]]
    command = [build.find(words[0]), *words[1:-1], str(config)]
    assert words[-1] == "/etc/sluice/sluice.yaml"
    assert build.run([build.find("sluice"), "--version"]).endswith("(compiled)\n")
    # Libraries that only some need are there as well.
    python = str(Path(build.find("sluice")).parent / "python")
    build.run([python, "-c", "import asyncmy, cryptography, grpc, zmq"])
    env = {"PYTHONPATH": "", **build.env}
    server = ServerProcess("image", command, tmp_path, lambda: answers(admin, "/readyz"), env)
    try:
        asked = [build.find("sluice"), *said["HEALTHCHECK"][1:], "--admin", f"127.0.0.1:{admin}"]
        build.run(asked)
    finally:
        assert server.stop() == 0, server.stderr
