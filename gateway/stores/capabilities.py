"""What a kind of store can do, where stores differ.

Redis, MySQL and the memory store keep every limit. A server with a protocol of its own may have
only one algorithm, give no turns, or take nothing back. `gateway.config.checking.capabilities` and
`capabilities.py` of each system derive the rules for configurations from this.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Capabilities(NamedTuple):
    """What a kind of store can do.

    Attributes:
        server: the name of one of its servers, with an article.
        is_shared: whether several gateways can share its counts.
        is_gatekeeper: whether requests pass before the store hears of them.
        only_mode: the one consistency that its policies can have; empty if all are possible.
        why_mode: the message about any other; `{mode}` stands for it.
        has_turns: whether a request can wait for its turn.
        why_apart: why it cannot decide on several limits in one ask; empty if it can.
        knows_gateways: whether it knows how many gateways share it.
        begins_by_clock: whether windows begin by its clock; otherwise with a key's first request.
        keeps_records: whether records of Throttr's clients can be kept beside its counts.
        keeps_reports: whether a Smockron master that uses it can keep the reports it receives.
        has_costs: whether a request may cost different amounts under its limits, and more or less
            than was assumed.
        can_peek: whether it can say what is left of a limit without spending any of it.
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
    has_costs: bool = True
    can_peek: bool = True


FULL: Final = Capabilities()
"""A store that keeps every limit."""
