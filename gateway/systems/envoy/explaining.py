"""Explain a listener for Envoy's rate limit service, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.frontends import FrontendConfig
from gateway.config.values.words import join
from gateway.systems.envoy.config import ANY, EnvoyRule, show_match

MAX_RULES: Final = 20
"""Most rules explained per domain; a longer list is better read in the file itself."""

_HEADERS: Final = {
    "draft": "RateLimit and RateLimit-Policy",
    "legacy": "X-RateLimit-Limit, -Remaining and -Reset",
    "both": "RateLimit, RateLimit-Policy and X-RateLimit-*",
}


def explain_envoy_rls(listener: FrontendConfig) -> Iterator[str]:
    """Return its domains, rule by rule, and what is sent to Envoy."""
    config = listener.envoy_rls
    assert config is not None, "called for listeners of this kind"
    for domain, rules in config.domains.items():
        yield f"Descriptors of the domain {domain}:"
        for rule in rules[:MAX_RULES]:
            yield f"  {show_match(rule.match)} {_explain_rule(rule)}."
        if len(rules) > MAX_RULES:
            yield f"  and {len(rules) - MAX_RULES} more."
        yield "  Others are not limited."
    if config.shadow:
        yield "Everything is counted, and nothing is refused."
    elif config.quota:
        yield "A request is refused if all of its descriptors are over their limits."
    else:
        yield (
            "A request is refused if one of its descriptors is over its limit; then no limit is "
            "spent."
        )
    if config.debits:
        yield (
            "A call in which all descriptors have a cost reports past usage: memory, Redis and "
            "MySQL count it even above the limit, by at most the limit once more."
        )
    if config.overrides:
        yield "A limit in a descriptor replaces that of the rule."
    if config.headers != "none":
        names = _HEADERS.get(config.headers) or join([name for _, name in config.header_names])
        yield f"Envoy reports what is left in {names}."


def _explain_rule(rule: EnvoyRule) -> str:
    if rule.unlimited:
        return "is not limited"
    if rule.refuse and rule.quota and not rule.shadow:
        return "is a quota that is used up"
    if rule.refuse:
        return "is always over its limit, but admitted" if rule.shadow else "is always refused"
    word = "policy" if len(rule.policies) == 1 else "policies"
    wild = list(dict.fromkeys(key for key, value in rule.match if ANY in value))
    own = [key for key in wild if not rule.is_shared(key)]
    text = f"is counted by {word} {join(rule.policies)}"
    if own:
        text += f", each {' and '.join(own)} separately"
    elif wild:
        text += ", all of them together"
    if rule.shadow:
        text += ", and always admitted"
    elif rule.quota:
        text += ", and refused only if all quotas of its request are over"
    if rule.debits:
        text += "; its cost was already used"
    if rule.replaces:
        text += f"; it replaces {join(rule.replaces)} if that matches too"
    return text
