"""Files, environment and secrets: the one place where a configuration is fetched.

A configuration is one file, or a folder of `*.yaml` and `*.yml` files joined in the order of
their names. Secret files are looked for beside the configuration unless their path is
absolute.
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
"""`config`, and `warnings`: what is allowed but hardly meant."""


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
        ConfigError: with everything that is wrong, in order of place.
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
    """What is in a file, or in the files of a folder in the order of their names.

    Raises:
        ConfigError: a file cannot be read, or there are none or too many.
    """
    files = _files(path)
    problems: list[Problem] = []
    sources: list[Source] = []
    for file in files:
        try:
            with file.open("rb") as stream:
                # One byte more than is allowed is enough to see that it is too much.
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
    # Hidden files are what editors and mounted volumes leave behind.
    files = sorted(
        file
        for file in path.iterdir()
        if file.suffix in {".yaml", ".yml"} and not file.name.startswith(".")
    )
    if not files:
        hint = "its files end in .yaml or .yml"
        raise ConfigError([Problem(str(path), 0, 0, "", "the folder has no configuration", hint)])
    if len(files) > MAX_FILES:
        raise ConfigError([Problem(str(path), 0, 0, "", f"more than {MAX_FILES} files")])
    return files
