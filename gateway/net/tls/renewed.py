"""What is made of files, and made anew when these have changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from gateway.net.tls.files import digest


class Renewed(ABC):
    """What is made of files.

    Args:
        paths: all of them.

    Attributes:
        paths: likewise.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self._digest = b""

    def load(self) -> None:
        """Read the files; blocks.

        Raises:
            TlsFileError: one will not do.
        """
        self._digest = digest(self.paths)
        self._read()

    def renew(self) -> bool:
        """Read the files again if they have changed; blocks.

        Returns:
            Whether new ones are in use.

        Raises:
            TlsFileError: they have changed and will not do; what was in use stays. It is
                raised once for each change.
        """
        found = digest(self.paths)
        if found == self._digest:
            return False
        self._digest = found
        self._read()
        return True

    @abstractmethod
    def _read(self) -> None:
        """Use what is in the files; raises `TlsFileError`, and changes nothing then."""
