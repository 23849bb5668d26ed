"""Reads files, environment and secrets: the only place that does so for a configuration.

A configuration is one file, or a folder of `*.yaml` and `*.yml` files merged in the order of their
names. Relative paths of secret files start from the folder of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.base.errors import ConfigError, Problem
from gateway.config.checking.check import Checked, Inspect, Source, check
from gateway.config.models.gateway import GatewayConfig
from gateway.config.reading.source import MAX_BYTES

MAX_FILES: Final = 1_000
MAX_SECRET_BYTES: Final = 64 << 10

Loaded = Checked
"""The `config`, and `warnings`: what is allowed but probably not intended."""


def load(
    path: Path,
    environ: Mapping[str, str],
    model: type[GatewayConfig] = GatewayConfig,
    inspect: Inspect | None = None,
) -> Loaded:
    """Read, check and complete the configuration at `path`.

    Args:
        path: a file, or a folder of files.
        environ: the variables that `${VAR}` refers to.
        model: as in `check`.
        inspect: likewise.

    Raises:
        ConfigError: with all problems, in order of position.
    """
    sources = fetch(path)
    folder = path if path.is_dir() else path.parent

    def read_secret(name: str) -> str:
        with (folder / name).absolute().open("rb") as stream:
            content = stream.read(MAX_SECRET_BYTES + 1)
        if len(content) > MAX_SECRET_BYTES:
            raise OSError(f"larger than {MAX_SECRET_BYTES >> 10} KiB")
        return content.decode()

    return check(sources, environ, read_secret, model, folder=folder.absolute(), inspect=inspect)


def fetch(path: Path) -> list[Source]:
    """Return the content of a file, or of the files of a folder in the order of their names.

    Raises:
        ConfigError: a file cannot be read, or there are no files or too many.
    """
    files = _files(path)
    problems: list[Problem] = []
    sources: list[Source] = []
    for file in files:
        try:
            with file.open("rb") as stream:
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
