"""The `sluice` command, and `python -m gateway` where that is not on the path.

Signals that come early must not end a start, and the modules of the command take a fifth of a
second to import: so those that serve note signals first.
"""

from __future__ import annotations

import sys
from typing import Final

from gateway.workers.start_signals import StartSignals

SERVING: Final = frozenset({"run", "ratio", "demo"})
"""The commands that serve; the default actions of signals are right for all others."""


def main() -> int:
    """Run the command; returns its exit status."""
    start_signals = StartSignals() if not SERVING.isdisjoint(sys.argv[1:2]) else None
    from gateway.command import cli

    return cli.main(start_signals=start_signals)


if __name__ == "__main__":
    sys.exit(main())
