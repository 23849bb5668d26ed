"""Reads files, environment and secrets: the only place that does so for a configuration.

A configuration is one file, or a folder of `*.yaml` and `*.yml` files merged in the order of their
names. Relative paths of secret files start from the folder of the configuration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.base.errors import ConfigError, Problem
from gateway.base.regular import open_regular
from gateway.config.checking.check import Checked, Inspect, Source, check
from gateway.config.models.gateway import AdminConfig, GatewayConfig
from gateway.config.reading.merge import merge
from gateway.config.reading.node_findings import without_extensions
from gateway.config.reading.nodes import Node, plain
from gateway.config.reading.source import MAX_BYTES, read
from gateway.config.reading.substitute import files_in
from gateway.config.values.base import untouched
from gateway.config.values.places import from_file
from gateway.config.values.redaction import Secrets
from gateway.config.values.types import Off

MAX_FILES: Final = 1_000
MAX_READS: Final = 5
"""How often the files of a folder are read until twice the same is found."""
MAX_SECRET_BYTES: Final = 64 << 10

Loaded = Checked
"""The `config`, and `warnings`: what is allowed but probably not intended."""


class ConfigFiles:
    """The files of a configuration, which are read at the start and for each reload.

    Args:
        path: a file, or a folder of files.
        environ: the variables that `${VAR}` refers to.
        inspect: returns a function that checks the files that the configuration names, as of now.

    Attributes:
        name: the path, for messages.
        loaded: the digest of what `load` has read last, in the sense of `digest`.
    """

    def __init__(
        self,
        path: Path,
        environ: Mapping[str, str],
        inspect: Callable[[], Inspect] | None = None,
    ) -> None:
        self.name = str(path)
        self.loaded = b""
        self._path = path
        self._environ = environ
        self._inspect = inspect

    def load(self) -> Loaded:
        """Read, check and complete the configuration; blocks.

        Raises:
            ConfigError: with all problems, in order of position.
        """
        # A file that cannot be read differs from any that can be.
        self.loaded = b""
        sources = fetch(self._path)
        self.loaded = _digest(sources, self._path)
        inspect = self._inspect() if self._inspect is not None else None
        return _check(sources, self._path, self._environ, inspect=inspect)

    def digest(self) -> bytes:
        """Return a digest of the content of all files, secret files included; blocks.

        Files are compared by content. Times and numbers of files tell less: some file systems have
        times in seconds, and volumes of Kubernetes get new files that say the same.
        """
        if self._path.exists() and not (self._path.is_file() or self._path.is_dir()):
            # A pipe can be read only once.
            return self.loaded
        try:
            return _digest(fetch(self._path), self._path)
        except (ConfigError, OSError):
            return b""


def load(
    path: Path,
    environ: Mapping[str, str],
    model: type[GatewayConfig] = GatewayConfig,
    inspect: Inspect | None = None,
    place: Path | None = None,
) -> Loaded:
    """Read, check and complete the configuration at `path`.

    Args:
        path: a file, or a folder of files.
        environ: the variables that `${VAR}` refers to.
        model: as in `check`.
        inspect: likewise.
        place: where the configuration is meant to be, which decides where relative paths of
            certificates start; default: where it is.

    Raises:
        ConfigError: with all problems, in order of position.
    """
    return _check(fetch(path), path, environ, model, inspect, place)


class _AdminOnly(BaseModel):
    """The section of a configuration that says where to ask a running gateway."""

    model_config = ConfigDict(extra="ignore")

    admin: Annotated[AdminConfig | None, Off] = untouched(AdminConfig)


def load_admin(path: Path, environ: Mapping[str, str]) -> AdminConfig | None:
    """Return the admin listener of the configuration at `path`; None if it has none.

    Mistakes elsewhere do not matter, nor variables and secret files that only the gateway has.

    Raises:
        ConfigError: the section cannot be read.
    """
    folder = _folder(path)
    roots: list[Node] = []
    for file, content in fetch(path):
        root, problems = read(file, content, environ, partial(_text_of, folder), Secrets())
        if root is None or any(one.path.split(".")[0] == "admin" for one in problems):
            raise ConfigError(problems)
        roots.append(without_extensions(root))
    joined, _ = merge(roots)
    try:
        return _AdminOnly.model_validate(plain(joined), context=from_file(folder)).admin
    except ValidationError:
        # Raises all problems, this one included.
        return load(path, environ).config.admin


def _text_of(folder: Path, name: str) -> str:
    return _read_secret(folder / name).decode()


def _check(
    sources: Sequence[Source],
    path: Path,
    environ: Mapping[str, str],
    model: type[GatewayConfig] = GatewayConfig,
    inspect: Inspect | None = None,
    place: Path | None = None,
) -> Loaded:
    read_secret = partial(_text_of, _folder(path))
    folder = _folder(path if place is None else place).absolute()
    return check(sources, environ, read_secret, model, folder=folder, inspect=inspect)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _open(file: Path) -> BufferedReader:
    return file.open("rb")


def _read_secret(file: Path, open_file: Callable[[Path], BufferedReader] = _open) -> bytes:
    with open_file(file.absolute()) as stream:
        content = stream.read(MAX_SECRET_BYTES + 1)
    if len(content) > MAX_SECRET_BYTES:
        raise OSError(f"larger than {MAX_SECRET_BYTES >> 10} KiB")
    return content


def _digest(sources: Sequence[Source], path: Path) -> bytes:
    total = hashlib.blake2b()
    for part in _parts(sources, _folder(path)):
        total.update(b"%d:" % len(part))
        total.update(part)
    return total.digest()


def _parts(sources: Sequence[Source], folder: Path) -> Iterator[bytes]:
    for file, content in sources:
        yield file.encode(errors="surrogateescape")
        yield content
        for name in files_in(content.decode(errors="replace")):
            try:
                # Nothing is known of a pipe, which can be read only once.
                yield _read_secret(folder / name, open_regular)
            except (OSError, ValueError) as error:
                yield str(error).encode(errors="replace")


def fetch(path: Path) -> list[Source]:
    """Return the content of a file, or of the files of a folder in the order of their names.

    The files of a folder are read as of one moment: other programs may be replacing them.

    Raises:
        ConfigError: a file cannot be read, or there are no files or too many.
    """
    sources = _fetch_once(path)
    if len(sources) > 1:
        for _ in range(MAX_READS):
            before, sources = sources, _fetch_once(path)
            if sources == before:
                break
    return sources


def _fetch_once(path: Path) -> list[Source]:
    files = _files(path)
    # Those of a folder are read again and again, which only regular files can be.
    open_file = _open if files == [path] else open_regular
    problems: list[Problem] = []
    sources: list[Source] = []
    for file in files:
        try:
            with open_file(file) as stream:
                # One byte more than the maximum shows that the file is too large.
                sources.append(Source(str(file), stream.read(MAX_BYTES + 1)))
        except OSError as error:
            reason = error.strerror or str(error)
            problems.append(Problem(str(file), 0, 0, "", f"cannot be read: {reason}"))
    if problems:
        raise ConfigError(problems)
    return sources


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    # Editors and mounted volumes leave hidden files behind.
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix in {".yaml", ".yml"} and not file.name.startswith(".")
    )
    if not files:
        hint = "its files must end in .yaml or .yml"
        raise ConfigError([Problem(str(path), 0, 0, "", "the folder has no configuration", hint)])
    if len(files) > MAX_FILES:
        raise ConfigError([Problem(str(path), 0, 0, "", f"more than {MAX_FILES} files")])
    return files
