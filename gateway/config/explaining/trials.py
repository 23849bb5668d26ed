"""Policies that are tried out, in words."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.explaining.limits import explain_limit
from gateway.config.models.gateway import PolicyConfig


def explain_trial(policy: PolicyConfig) -> Iterator[str]:
    """Describe for which keys a policy is enforced, and which limits are tried beside it."""
    if policy.mode == "shadow":
        yield (
            "It is not enforced (shadow mode): it decides and counts, and its decisions are in the "
            "log and in metrics only. If it were enforced:"
        )
    elif policy.mode != "enforce":
        yield (
            f"It is enforced for {policy.mode} of the keys, always the same ones; for the others "
            "it only decides, counts and logs."
        )
    if policy.candidate is not None:
        for line in policy.candidate.limits:
            yield f"Tried beside it, in shadow mode: {line.text}: {explain_limit(line)}."
