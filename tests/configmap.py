"""A volume of Kubernetes with the files of a ConfigMap, written as the kubelet writes it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path


class ConfigMapVolume:
    """A folder of symlinks into `..data`, itself a symlink to the folder of one version.

    Args:
        folder: where it is mounted.
        files: the content of each file, by name.
    """

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder
        self._versions = count(1)
        folder.mkdir()
        self.update(files)

    def update(self, files: Mapping[str, str]) -> None:
        """Replace all files in one step: the symlink is renamed over, and the old folder goes."""
        data = self.folder / "..data"
        old = data.resolve() if data.exists() else None
        new = self.folder / f"..version_{next(self._versions)}"
        new.mkdir()
        for name, text in files.items():
            (new / name).write_text(text)
        coming = self.folder / "..data_tmp"
        coming.symlink_to(new.name)
        coming.rename(data)
        for name in files:
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(Path("..data") / name)
        for link in self.folder.iterdir():
            if not link.name.startswith("..") and link.name not in files:
                link.unlink()
        if old is not None:
            shutil.rmtree(old)
