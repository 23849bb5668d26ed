"""Python's logging comes out in lines of the same form as those of requests."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.observe.logs import open_output, setup_logging
from gateway.observe.logs.escape import LogFormat
from gateway.observe.logs.process import LineFormatter
from gateway.observe.metrics import LogMetrics


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(path: Path, log_format: LogFormat, level: str = "info") -> list[str]:
    """What a few calls of a library leave in the log."""
    output = open_output(str(path), LogMetrics())
    setup_logging(output, log_format, level)
    log = logging.getLogger("some.library")
    log.debug("too small")
    log.info("started on %s", "127.0.0.1:80")
    try:
        int("bad\nvalue \x1b[31m")
    except ValueError:
        log.exception("it\nfailed")
    output.close()
    return path.read_text().splitlines()


def test_json(tmp_path: Path) -> None:
    """One line for each record, its traceback in a field."""
    first, second = map(json.loads, lines_of(tmp_path / "log", "json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "level": "info",
        "logger": "some.library",
        "message": "started on 127.0.0.1:80",
    }
    assert second["message"] == "it\nfailed"
    assert second["traceback"].startswith("Traceback (most recent call last):\n")
    assert second["traceback"].endswith(
        "ValueError: invalid literal for int() with base 10: 'bad\\nvalue \\x1b[31m'"
    )


def test_text(tmp_path: Path) -> None:
    """One line for each record here too; line breaks and colours are shown, not obeyed."""
    first, second = lines_of(tmp_path / "log", "text")
    assert first[24:] == " INFO    some.library: started on 127.0.0.1:80"
    assert second[24:].startswith(r' ERROR   some.library: it\nfailed traceback="Traceback')
    assert second.endswith("'bad\\\\nvalue \\\\x1b[31m'\"")


def test_level(tmp_path: Path) -> None:
    """What is below the level is left out."""
    assert len(lines_of(tmp_path / "log", "json", "error")) == 1
    assert len(lines_of(tmp_path / "log2", "json", "debug")) == 3


def test_warnings_are_log_lines(tmp_path: Path) -> None:
    """Python's warnings do not end up as bare text on the error stream."""
    path = tmp_path / "log"
    output = open_output(str(path), LogMetrics())
    setup_logging(output, "json", "info")
    warnings.simplefilter("always")  # pytest makes errors of them, and undoes this afterwards
    warnings.warn("old habits", UserWarning, stacklevel=1)
    output.close()
    assert "old habits" in json.loads(path.read_text())["message"]


def test_setting_up_again_replaces(tmp_path: Path) -> None:
    """After a second set-up, a record is written once."""
    output = open_output(str(tmp_path / "log"), LogMetrics())
    setup_logging(output, "json", "info")
    setup_logging(output, "json", "info")
    logging.getLogger("x").warning("once")
    output.close()
    assert (tmp_path / "log").read_text().count("\n") == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.one_of(st.text(), st.characters(categories=["Cs", "Cc", "Cf", "Zl"])),
    message=st.one_of(st.text(), st.characters(categories=["Cs", "Cc", "Cf", "Zl"])),
    log_format=st.sampled_from(["json", "text"]),
)
def test_any_message_is_one_line(name: str, message: str, log_format: LogFormat) -> None:
    """Whatever ends up in a message: one line that can be encoded, JSON where that is due."""
    record = logging.LogRecord(name, logging.INFO, "", 1, message, None, None)
    line = LineFormatter(log_format).format(record)
    line.encode()
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    if log_format == "json":
        assert json.loads(line)["message"] == message.encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize(
    ("log_format", "words"),
    [("json", '"level":"info","process":"worker-2","logger":"a"'), ("text", "INFO    worker-2 a:")],
)
def test_one_of_several_processes_is_named(log_format: LogFormat, words: str) -> None:
    """In each line that it writes about itself."""
    record = logging.LogRecord("a", logging.INFO, "", 0, "hello", None, None)
    assert words in LineFormatter(log_format, "worker-2").format(record)
