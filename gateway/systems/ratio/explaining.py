"""A ratio listener in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.frontends import FrontendConfig
from gateway.config.values.words import join
from gateway.systems.ratio.config import RatioRule
from gateway.systems.ratio.rules import ANY


def explain_ratio(listener: FrontendConfig) -> Iterator[str]:
    """Yield the limits for each kind of question, in the order of the rules."""
    settings = listener.ratio
    if settings is None:
        return
    for rule in settings.rules:
        what = f"counted by {_named(rule.policies)}" if rule.policies else "not limited"
        yield f"{_whom(rule)}: {what}."
    whom = "All others" if settings.rules else "Every question"
    if settings.policies:
        yield f"{whom}: counted by {_named(settings.policies)}."
    else:
        answer = "answered OVER_LIMIT" if settings.unmatched == "refuse" else "admitted"
        yield f"{whom}: {answer}."
    if listener.policies:
        yield "Each pair of owner and resource is counted separately, unless a limit has per."


def _whom(rule: RatioRule) -> str:
    said = (("owner", rule.owner), ("resource", rule.resource))
    words = [f"{word} {pattern}" for word, pattern in said if pattern.strip(ANY)]
    text = ", ".join(words) or "everything"
    return text[:1].upper() + text[1:]


def _named(policies: tuple[str, ...]) -> str:
    return f"{'policy' if len(policies) == 1 else 'policies'} {join(policies)}"
