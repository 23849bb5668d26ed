"""The samples about policies: a part of the table of all."""

from __future__ import annotations

from typing import Any, Final

from gateway.observe.metrics.children import POLICIES, decisions, has_decided, has_settled
from gateway.observe.metrics.families import COUNT, Family, Field, Section, counter, gauge

POLICY_SECTIONS: Final[tuple[Section[Any], ...]] = (
    Section(
        POLICIES,
        (
            Family(
                "counter",
                "sluice_decisions",
                "Decisions on requests, by policy and result.",
                ("decision",),
                (
                    *(Field("passed", COUNT), Field("refused", COUNT), Field("delayed", COUNT)),
                    Field("skipped", COUNT),
                    Field("store_error_passed", COUNT),
                    Field("store_error_refused", COUNT),
                    *(Field(f"shadow_{name}", COUNT) for name in ("passed", "delayed", "refused")),
                ),
                decisions,
            ),
        ),
    ),
    Section(
        POLICIES,
        (
            counter(
                "sluice_policy_wait_seconds",
                "Total time that delayed requests waited for their turn.",
                "wait_us",
                lambda us: us / 1e6,
            ),
            gauge(
                "sluice_policy_waiting", "Requests that currently wait for their turn.", "waiting"
            ),
        ),
        is_shown=lambda of, _, __: has_decided(of),
    ),
    Section(
        POLICIES,
        (
            Family(
                "counter",
                "sluice_settled_cost",
                "Cost that was counted or given back after requests had ended.",
                ("direction",),
                (Field("debited", COUNT), Field("returned", COUNT)),
                lambda of: ((("debited",), of.debited), (("returned",), of.returned)),
            ),
            counter(
                "sluice_unsettled_requests",
                "Requests whose responses did not say what they had cost.",
                "unsettled",
            ),
            counter(
                "sluice_uncounted_requests",
                "Requests that were given back because of the status of their response.",
                "uncounted",
            ),
        ),
        is_shown=lambda of, _, __: has_settled(of),
    ),
)
