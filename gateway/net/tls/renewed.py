"""Objects made from files, and made again when the files change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from gateway.net.tls.files import digest


class Renewed(ABC):
    """An object made from files.

    Args:
        paths: all its files.

    Attributes:
        paths: likewise.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self._digest = b""

    @property
    def is_loaded(self) -> bool:
        """Whether its files have been read."""
        return bool(self._digest)

    def load(self) -> None:
        """Read the files; blocks.

        Raises:
            TlsFileError: a file cannot be used.
        """
        self._digest = digest(self.paths)
        self._read()

    def renew(self) -> bool:
        """Read the files again if they have changed; blocks.

        Returns:
            Whether new ones are in use.

        Raises:
            TlsFileError: they have changed and cannot be used; the previous ones stay in use.
                Raised once per change.
        """
        found = digest(self.paths)
        if found == self._digest:
            return False
        self._digest = found
        self._read()
        return True

    @abstractmethod
    def _read(self) -> None:
        """Use the content of the files; if it raises `TlsFileError`, nothing has changed."""
