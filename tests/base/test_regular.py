"""Files that nobody has to be waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.base.regular import open_regular


def test_a_file_is_read(tmp_path: Path) -> None:
    """Directly, and by a link."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"content")
    link.symlink_to(file)
    for path in (file, link):
        with open_regular(path) as stream:
            assert stream.read() == b"content"


def test_nothing_else_is(tmp_path: Path) -> None:
    """A pipe without a writer, a device, a socket, a folder, and what is not there."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/null"), tmp_path):
            with pytest.raises(OSError, match=r"is not a regular file|No such device|directory"):
                open_regular(path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
