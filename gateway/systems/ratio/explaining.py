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
    whom = "What no rule matches" if settings.rules else "Every question"
    if settings.policies:
        yield f"{whom}: counted by {_named(settings.policies)}."
    else:
        answer = "is answered OVER_LIMIT" if settings.unmatched == "refuse" else "is let through"
        yield f"{whom} {answer}."
    if listener.policies:
        yield "Each owner is counted with each resource by itself, unless a limit says per what."


def _whom(rule: RatioRule) -> str:
    said = (("owner", rule.owner), ("resource", rule.resource))
    words = [f"{word} {pattern}" for word, pattern in said if pattern.strip(ANY)]
    text = ", ".join(words) or "everything"
    return text[:1].upper() + text[1:]


def _named(policies: tuple[str, ...]) -> str:
    return f"{'policy' if len(policies) == 1 else 'policies'} {join(policies)}"
