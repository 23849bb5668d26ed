"""Run `python -m gateway`, for environments in which `sluice` is not on the path."""

from __future__ import annotations

import sys

from gateway.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
