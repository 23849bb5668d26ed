"""Python's logging, in the same format as lines of requests.

Libraries and the gateway itself log as usual; this module only decides how and where a record is
written. The main program configures it once.
"""

from __future__ import annotations

import logging

from gateway.observe.logs.escape import LogFormat, Timestamp, json_string, message, word
from gateway.observe.logs.output import Output


def setup_logging(output: Output, log_format: LogFormat, level: str, process: str = "") -> None:
    """Send every log record of this process to `output`, replacing previous handlers.

    Args:
        output: the output to write to.
        log_format: `json` or `text`.
        level: the lowest level that is written: debug, info, warning or error.
        process: the name of this process of the gateway; empty if there is only one.
    """
    handler = OutputHandler(output)
    handler.setFormatter(LineFormatter(log_format, process))
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


class LineFormatter(logging.Formatter):
    """Formats a record as one line, without its end; the traceback is a field like any other."""

    def __init__(self, log_format: LogFormat, process: str = "") -> None:
        super().__init__()
        self._log_format = log_format
        self._process = process
        self._time = Timestamp()

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of `record`."""
        time = self._time.text(round(record.created * 1_000_000))
        text = record.getMessage()
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        process = self._process
        if self._log_format == "json":
            speaker = f'"process":{json_string(process)},' if process else ""
            line = (
                f'{{"time":"{time}","level":"{record.levelname.lower()}",{speaker}'
                f'"logger":{json_string(record.name)},"message":{json_string(text)}'
            )
            return f'{line},"traceback":{json_string(traceback)}}}' if traceback else f"{line}}}"
        speaker = f"{word(process)} " if process else ""
        line = f"{time} {record.levelname:<7} {speaker}{word(record.name)}: {message(text)}"
        return f"{line} traceback={word(traceback)}" if traceback else line


class OutputHandler(logging.Handler):
    """Writes immediately, from any thread, so that the last words of a dying process are kept."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of `record`."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is the caller's bug
            self.handleError(record)
        else:
            self._output.write(f"{line}\n".encode())
