"""How long it takes to read a list of a million lines, and to look something up in it.

`python -m bench.micro.lists`: CPU time, in one process without load.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.config.models.lists import ListConfig
from gateway.wiring.lists import ListSource

LINES: Final = 1_000_000
LOOKUPS: Final = 100_000


def networks(chance: random.Random) -> Iterator[str]:
    """Yield networks of both versions."""
    for number in range(LINES):
        if number % 2:
            parts = (chance.randrange(1, 224), chance.randrange(256), chance.randrange(256))
            yield f"{parts[0]}.{parts[1]}.{parts[2]}.0/24"
        else:
            yield f"2001:{chance.randrange(65536):x}:{chance.randrange(65536):x}::/48"


def values(chance: random.Random) -> Iterator[str]:
    """Yield API keys."""
    for _ in range(LINES):
        yield f"key-{chance.randrange(10**12)}"


def main() -> None:
    """Measure both kinds of lists."""
    chance = random.Random(1)
    addresses = [f"{chance.randrange(1, 224)}.{chance.randrange(256)}.1.2" for _ in range(LOOKUPS)]
    keys = [f"key-{number}" for number in range(LOOKUPS)]
    with tempfile.TemporaryDirectory() as folder:
        for per, lines, asked in (
            ("ip", networks(chance), addresses),
            ("header:X-API-Key", values(chance), keys),
        ):
            path = Path(folder) / "list"
            path.write_text("\n".join(lines))
            source = ListSource(ListConfig.model_validate({"per": per, "file": str(path)}))
            begun = time.process_time()
            source.load()
            print(f"{per}: {LINES} lines read in {time.process_time() - begun:.2f} s")
            found = source.content.content
            for what, each in (("other", asked), ("the same", asked[:1000] * 100)):
                begun = time.process_time()
                for one in each:
                    one in found  # noqa: B015 - the look-up is what is measured
                spent_us = (time.process_time() - begun) / LOOKUPS * 1e6
                print(f"{per}: {spent_us:.2f} us to look up {what} ones")


if __name__ == "__main__":
    main()
