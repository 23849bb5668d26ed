"""The Lua scripts, assembled from a common beginning, the algorithms and their own end."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final, NamedTuple

from gateway.limits import ALGORITHMS

_FILES: Final = {
    "token_bucket": "token_bucket.lua",
    "sliding_window_log": "sliding_log.lua",
    "sliding_window_counter": "sliding_counter.lua",
    "fixed_window": "fixed_window.lua",
    "paced_history": "paced_history.lua",
    "concurrency": "leases.lua",
}
"""The twin of each algorithm, named like the module of its original."""


_SHARED: Final = {"ratio": "ratio_log.lua"}
"""By tag, the algorithms that use the counts of another system's servers."""


class Script(NamedTuple):
    """A script and the digest under which the server remembers it."""

    source: bytes
    digest: bytes


def _read(*path: str) -> str:
    return resources.files("gateway.stores.redis").joinpath("lua", *path).read_text()


def _script(source: str) -> Script:
    # The server's name for a script, not a protection: it uses SHA-1.
    digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(source.encode(), digest.encode())


def _algorithms() -> str:
    # A function each: what it defines is made only in calls that need it.
    files = {known.tag: _FILES[name] for name, known in ALGORITHMS.items()} | _SHARED
    return "".join(
        f"algorithms.{tag} = function()\n{_read('algorithms', file)}end\n\n"
        for tag, file in files.items()
    )


_BEGIN: Final = _read("common.lua") + _algorithms()

DECIDE: Final = _script(_BEGIN + _read("decide.lua"))
GIVE_BACK: Final = _script(_BEGIN + _read("give_back.lua"))
RENEW: Final = _script(_BEGIN + _read("renew.lua"))
REPORT: Final = _script(_read("common.lua") + _read("report.lua"))
THROTTR2: Final = _script(_read("throttr.lua") + _read("throttr_v2.lua"))
THROTTR5: Final = _script(_read("throttr.lua") + _read("throttr_v5.lua"))
HEARTBEAT: Final = _script(_read("heartbeat.lua"))
SCRIPTS: Final = (DECIDE.source, GIVE_BACK.source, RENEW.source)
"""The scripts for limits that a server is asked to remember; the heartbeat is too rare for that."""
