"""What a listener for Envoy will do, in sentences."""

from __future__ import annotations

from gateway.systems.envoy.explaining import MAX_RULES, explain_envoy_rls
from tests.envoy_rls import config_of

DEBITS = (
    "A call in which all descriptors have a cost reports past usage: memory, Redis and MySQL count "
    "it even above the limit, by at most the limit once more."
)


def _explain(rules: str, options: str = "") -> list[str]:
    return list(explain_envoy_rls(config_of(rules, options).listeners[0]))


def test_every_kind_of_rule_has_its_sentence() -> None:
    """How they count, which are admitted and which are not."""
    lines = _explain(
        """
        { match: { database: users }, limit: 500/s }
        { match: { path: /v1/*, user: "*" }, limit: 10/s }
        { match: { path: /v2/*, user: "*" }, limit: 10/s, shared: path }
        { match: { path: /v3/* }, limit: 10/s, shared: true, shadow: true }
        { match: { user: "*" }, limit: 1/s, name: usual }
        { match: { user: big }, limit: 9/s, replaces: usual }
        { match: { user: friend }, unlimited: true }
        { match: { user: foe }, refuse: true }
        { match: { user: test }, refuse: true, shadow: true }
        """
    )

    assert lines[:-3] == [
        "Descriptors of the domain shop:",
        "  database=users is counted by policy shop/database=users.",
        (
            "  path=/v1/*,user=* is counted by policy shop/path=/v1/*,user=*, each path and user "
            "separately."
        ),
        "  path=/v2/*,user=* is counted by policy shop/path=/v2/*,user=*, each user separately.",
        (
            "  path=/v3/* is counted by policy shop/path=/v3/*, all of them together, and "
            "always admitted."
        ),
        "  user=* is counted by policy shop/user=*, each user separately.",
        "  user=big is counted by policy shop/user=big; it replaces usual if that matches too.",
        "  user=friend is not limited.",
        "  user=foe is always refused.",
        "  user=test is always over its limit, but admitted.",
        "  Others are not limited.",
    ]


def test_what_envoy_is_told_is_said() -> None:
    """And what comes of descriptors that bring limits along."""
    rule = "{ match: { a: x }, limit: 1/s }"

    assert _explain(rule)[-3:] == [
        "A request is refused if one of its descriptors is over its limit; then no limit is spent.",
        DEBITS,
        "A limit in a descriptor replaces that of the rule.",
    ]
    assert _explain(rule, "headers: envoy\nshadow: true\noverrides: off\ndebits: off")[-2:] == [
        "Everything is counted, and nothing is refused.",
        ("Envoy reports what is left in RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset."),
    ]


def test_a_long_list_is_cut() -> None:
    """It is in the file."""
    rules = "\n".join(f"{{ match: {{ a: x{number} }}, limit: 1/s }}" for number in range(25))

    lines = _explain(rules)

    assert lines[MAX_RULES + 1] == "  and 5 more."
    assert lines[MAX_RULES + 2] == "  Others are not limited."
