"""Files of lists: what they may hold, and when they are read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base.errors import UnusableFileError
from gateway.config.models.lists import ListConfig
from gateway.wiring.lists import ListSource


def _source(path: Path, per: str = "ip", values: list[str] | None = None) -> ListSource:
    data: dict[str, object] = {"per": per, "values": values or [], "file": str(path)}
    source = ListSource(ListConfig.model_validate(data))
    source.load()
    return source


def _has(source: ListSource, value: str) -> bool:
    return value in source.content.content


def test_networks(tmp_path: Path) -> None:
    """With comments of several makes, blank lines and both ends of lines."""
    path = tmp_path / "list"
    path.write_bytes(
        b"\xef\xbb\xbf192.0.2.0/24 ; SBL1\r\n\n# comment\n  2001:db8::/32\t# two\n"
        b"::ffff:10.0.0.0/104\n"
    )
    source = _source(path, values=["198.51.100.7"])
    for address in ("192.0.2.9", "2001:db8::1", "10.1.2.3", "198.51.100.7"):
        assert _has(source, address)
    assert not _has(source, "192.0.3.1")


def test_values(tmp_path: Path) -> None:
    """A value may have any characters; only lines that begin with # are comments."""
    path = tmp_path / "list"
    path.write_bytes(b"# keys\n  k#1 \nk;2\n\xff\n\n")
    source = _source(path, "header:X-API-Key")
    for value in ("k#1", "k;2", "\udcff"):
        assert _has(source, value)
    assert not _has(source, "# keys")
    assert not _has(source, "")


def test_credentials_are_compared_as_they_are_counted(tmp_path: Path) -> None:
    """Their scheme has no case."""
    path = tmp_path / "list"
    path.write_text("BEARER  abc\n")
    assert _has(_source(path, "header:Authorization"), "bearer abc")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"10.0.0.0/8\n10.0.0.300\n", "line 2: '10.0.0.300' is not a network"),
        (b"10.0.0.1/8\n", "line 1: '10.0.0.1/8' has bits set outside its prefix"),
        (b"10.0.0.0/8, 11.0.0.0/8\n", "line 1: '10.0.0.0/8, 11.0.0.0/8' is not a network"),
        (b"\xff\n", "line 1: "),
    ],
)
def test_a_line_that_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    """Is named, with its number."""
    path = tmp_path / "list"
    path.write_bytes(content)
    with pytest.raises(UnusableFileError) as raised:
        _source(path)
    assert f"{path}, {message}" in raised.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """It is missing, or no file."""
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UnusableFileError, match="cannot be read"):
            _source(path)


def test_a_value_that_is_too_long(tmp_path: Path) -> None:
    """The longest header field is shorter."""
    path = tmp_path / "list"
    path.write_text("a\n" + "k" * 70_000)
    with pytest.raises(UnusableFileError, match="line 2: the value is longer than 65535 bytes"):
        _source(path, "header:X-API-Key")


def test_a_changed_file_is_read_when_it_has_settled(tmp_path: Path) -> None:
    """One that is still written to is not."""
    path = tmp_path / "list"
    path.write_text("192.0.2.1\n")
    source = _source(path)
    assert not source.renew()
    path.write_text("192.0.2.2\n192.0.")
    assert not source.renew()
    path.write_text("192.0.2.2\n192.0.2.3\n")
    assert not source.renew()
    assert _has(source, "192.0.2.1")
    assert source.renew()
    assert not source.renew()
    assert not _has(source, "192.0.2.1")
    assert _has(source, "192.0.2.3")


def test_a_broken_file_leaves_what_was_read(tmp_path: Path) -> None:
    """It is reported once, and read when it is mended; so is one that is gone."""
    path = tmp_path / "list"
    path.write_text("192.0.2.1\n")
    source = _source(path)
    for change in (lambda: path.write_text("192.0.2\n"), path.unlink):
        change()
        assert not source.renew()
        with pytest.raises(UnusableFileError):
            source.renew()
        assert not source.renew()
        assert _has(source, "192.0.2.1")
    path.write_text("192.0.2.2\n")
    assert not source.renew()
    assert source.renew()
    assert _has(source, "192.0.2.2")
