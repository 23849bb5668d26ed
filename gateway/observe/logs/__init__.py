"""What the gateway writes about its work: a line for each request, and lines about itself.

`escape` makes any text safe to stand in a line, `access` makes the line of a request,
`process` those of Python's logging, and `output` brings lines to a file or a pipe without
ever holding a request up.
"""

from __future__ import annotations

from gateway.observe.logs.access import AccessEntry, AccessLog
from gateway.observe.logs.output import LineWriter, Output, open_output
from gateway.observe.logs.process import setup_logging

__all__ = ["AccessEntry", "AccessLog", "LineWriter", "Output", "open_output", "setup_logging"]
