"""What requests cost, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.policies import PolicyConfig
from gateway.config.values.words import join, number


def explain_costs(policy: PolicyConfig) -> Iterator[str]:
    """Say what a request costs under a policy, and what is settled when it has ended."""
    cost = policy.cost
    if cost.is_own:
        fixed = cost.reserve.constant
        if fixed is None:
            yield f"A request costs {cost.reserve.text}; 1 if that cannot be found out."
        elif fixed > 1:
            yield f"A request costs {number(fixed)}."
    if cost.settle is not None:
        most = "as much as the limit allows at once"
        if cost.max_debt is not None:
            most = number(cost.max_debt)
        yield (
            f"When it has ended, it has cost {cost.settle.text}, by its response; the difference "
            f"is counted or given back. At most {most} may be owed."
        )
    if policy.count_when:
        yield (
            f"Only requests whose response is {join(policy.count_when, 'or')} count; others are "
            "given back."
        )
