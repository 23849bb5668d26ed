"""What a kind of store can do, where not every store can.

Redis, MySQL and the memory keep every limit. A server that speaks a protocol of its own may have
one algorithm only, give no turns, or take nothing back. What follows from that for a configuration
is in `gateway.config.checking.capabilities` and in `capabilities.py` of each system.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Capabilities(NamedTuple):
    """What a kind of store can do.

    Attributes:
        server: what one of its servers is called, with an article.
        is_shared: whether several gateways can share its counts.
        is_gatekeeper: whether requests pass before the store hears of them.
        only_mode: the one consistency that its policies can have; empty if all can be had.
        why_mode: what is said of any other; `{mode}` stands for it.
        has_turns: whether a request can wait for its turn.
        why_apart: why it cannot decide on several limits at once; empty if it can.
        knows_gateways: whether it can tell how many gateways share it.
        begins_by_clock: whether windows begin by its clock; otherwise with a key's first request.
        keeps_records: whether records of Throttr's clients can be kept beside its counts.
        keeps_reports: whether a master of Smockron that has it can keep what it hears.
    """

    server: str = "the store"
    is_shared: bool = True
    is_gatekeeper: bool = False
    only_mode: str = ""
    why_mode: str = ""
    has_turns: bool = True
    why_apart: str = ""
    knows_gateways: bool = True
    begins_by_clock: bool = True
    keeps_records: bool = False
    keeps_reports: bool = False


FULL: Final = Capabilities()
"""A store that keeps every limit."""
