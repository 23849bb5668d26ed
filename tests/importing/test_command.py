"""`sluice import`: files in, a configuration out, and what is not the same beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gateway.command.cli import main
from gateway.command.printing import EXIT_FAILED, EXIT_OK

ONE: Final = """\
domain: one
descriptors:
  - {key: remote_address, detailed_metric: true, rate_limit: {unit: second, requests_per_unit: 9}}
"""
TWO: Final = ONE.replace("one", "two").replace("detailed_metric: true, ", "")


def test_what_is_printed_can_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files and folders are one configuration on stdout; notes are on stderr, with their places."""
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "two.yaml").write_text(TWO)
    (tmp_path / "one.yaml").write_text(ONE)

    status = main(["import", "envoy-ratelimit", str(tmp_path / "one.yaml"), str(folder)])
    printed, told = capsys.readouterr()

    assert status == EXIT_OK
    assert f"{tmp_path / 'one.yaml'}:3:27: note: detailed_metric has no equivalent" in told
    result = tmp_path / "sluice.yaml"
    result.write_text(printed)
    assert main(["check", str(result)]) == EXIT_OK


def test_what_is_wrong_is_told_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake, and a file that is not there, are problems with a place."""
    path = tmp_path / "wrong.yaml"
    path.write_text(ONE.replace("second", "secnod"))

    assert main(["import", "envoy-ratelimit", str(path)]) == EXIT_FAILED
    printed, told = capsys.readouterr()
    assert printed == ""
    assert "wrong.yaml:3:69: 'secnod' is not a unit" in told
    assert "did you mean second?" in told

    assert main(["import", "envoy-ratelimit", str(tmp_path / "none.yaml")]) == EXIT_FAILED
    assert "cannot be read" in capsys.readouterr().err


def test_a_system_that_is_nearly_known_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As with commands."""
    with pytest.raises(SystemExit):
        main(["import", "envoy_ratelimit", "config"])
    assert "did you mean sluice import envoy-ratelimit?" in capsys.readouterr().err
