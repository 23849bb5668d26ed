"""The log: a line for each request, and lines about the gateway itself.

`escape` makes any text safe for a line, `access` makes the line of a request, `process` those of
Python's logging, and `output` writes lines to a file or a pipe without ever delaying a request.
"""

from __future__ import annotations

from gateway.observe.logs.access import AccessEntry, AccessLog
from gateway.observe.logs.output import LineWriter, Output, open_output
from gateway.observe.logs.process import setup_logging

__all__ = ["AccessEntry", "AccessLog", "LineWriter", "Output", "open_output", "setup_logging"]
