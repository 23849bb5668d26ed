"""The fields that tell clients of their limits: no I/O.

`RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-10 (`q`, `qu`,
`w`, `r`, `t`; Lists of Strings, RFC 9651), with `X-RateLimit-*` beside them where configured. A
client that obeys any of them is not refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from gateway.base.clock import US
from gateway.http.answer import FAR_US, retry_after_s, seconds_up
from gateway.limiter.plan import KeyOf, Rule, is_keyed, is_tiered, is_tried
from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER, Decision, Verdict
from gateway.limits.rate import NS_PER_US, Limit

_LONGEST_S: Final = {"day": 90_000, "week": 608_400, "month": 2_682_000}
"""The longest windows of calendars: a day of 25 hours, a week or a month of 31 days with one."""

_FOREVER_US: Final = 2**62

_MAX_TIERS: Final = 1_024
"""Combinations of tiers whose lines are prepared."""

_Pair = tuple[Rule, Decision]


def limit_fields(rules: Sequence[Rule]) -> LimitFields | None:
    """Return what makes the lines of a route; None if none of its limits is ever enforced."""
    shown = [rule for rule in rules if rule.policy.enforced_parts]
    if not shown:
        return None
    enforced = rules if len(shown) == len(rules) else shown
    return LimitFields(enforced, is_tiered=is_tiered(enforced))


class LimitFields:
    """Makes the `RateLimit-Policy`, `RateLimit` and `X-RateLimit-*` lines of one route.

    `t` is the window in which `r` holds, so that `r / t` is never above the true rate. On a refusal
    it equals `Retry-After`, and limits that did not refuse omit it, so that it never points later.
    A limit on requests in flight has no window: it has a `t` only on a refusal, and `X-RateLimit-*`
    describes it only if there is no rate.

    Args:
        rules: all rules of the route.
        is_tiered: whether tiers have other rules; they get lines of their own, once.
    """

    __slots__ = (
        "_by_tier",
        "_has_draft",
        "_has_legacy",
        "_is_distinct",
        "_is_keyed",
        "_is_tiered",
        "_policy_line",
        "_rates",
        "_refused",
        "_rules",
        "_several",
        "_template",
    )

    def __init__(self, rules: Sequence[Rule], *, is_tiered: bool = False) -> None:
        self._rules = rules
        self._by_tier: dict[tuple[int, ...], LimitFields | None] = {}
        self._policy_line = _policy_line(rules)
        policy = rules[0].policy
        self._has_draft = policy.draft_headers
        self._has_legacy = policy.legacy_headers
        self._is_distinct = _is_distinct(rules)
        # Which limits there are, or which numbers they have, may depend on the key.
        depends = is_keyed(rules) or is_tried(rules)
        self._is_keyed = depends or is_tiered
        self._is_tiered = is_tiered and not depends
        is_plain = len(rules) == 1 and not self._is_keyed and not policy.throttlex_headers
        self._template = self._prepare(rules[0], is_refused=False) if is_plain else b""
        self._refused = self._prepare(rules[0], is_refused=True) if is_plain else b""
        self._several = self._prepare_several(rules) if len(rules) > 1 else b""
        rates = [index for index, rule in enumerate(rules) if not _is_in_flight(rule.limit)]
        # Empty if there is nothing to leave out.
        self._rates = tuple(rates) if len(rates) < len(rules) else ()

    def _prepare(self, rule: Rule, *, is_refused: bool) -> bytes:
        """The lines of a route with a single limit, as a template: a tenth of the work."""
        text = self._policy_line.replace("%", "%%")
        if self._has_draft:
            item = f'RateLimit: "{_string(rule.title)}"'.replace("%", "%%")
            text += f"{item};r=0;t=%d\r\n" if is_refused else f"{item};r=%d{_time(rule)}\r\n"
        if self._has_legacy:
            remaining = "0" if is_refused else "%d"
            text += (
                f"X-RateLimit-Limit: {rule.limit.burst}\r\n"
                f"X-RateLimit-Remaining: {remaining}\r\nX-RateLimit-Reset: %d\r\n"
            )
        return text.encode("ascii")

    def _prepare_several(self, rules: Sequence[Rule]) -> bytes:
        """The lines of a route with several limits that admit a request; none if they differ."""
        shown = {(rule.policy.draft_headers, rule.policy.legacy_headers) for rule in rules}
        is_special = self._is_keyed or any(rule.policy.throttlex_headers for rule in rules)
        if is_special or len(shown) > 1 or not self._is_distinct:
            return b""
        text = self._policy_line.replace("%", "%%")
        if self._has_draft:
            titles = [(_string(rule.title).replace("%", "%%"), _time(rule)) for rule in rules]
            items = [f'"{title}";r=%d{time}' for title, time in titles]
            text += f"RateLimit: {', '.join(items)}\r\n"
        if self._has_legacy:
            names = ("Limit", "Remaining", "Reset")
            text += "".join([f"X-RateLimit-{name}: %d\r\n" for name in names])
        return text.encode("ascii")

    def lines(self, rules: Sequence[Rule], verdict: Verdict) -> bytes:
        """Return the lines of one response.

        Args:
            rules: the rules that applied to the request.
            verdict: with a decision for each of them.
        """
        if self._template and len(rules) == 1 and NEVER < verdict.retry_after_us <= FAR_US:
            return self._fill_in(verdict)
        if self._several and rules is self._rules and verdict.allowed:
            return self._fill_in_several(verdict.decisions)
        if self._is_tiered and rules:
            of_tier = self._of_tier(rules)
            if of_tier is not None:
                return of_tier.own_lines(verdict)
        return self._written_out(rules, verdict)

    def own_lines(self, verdict: Verdict) -> bytes:
        """Return the lines of one response to which all rules applied."""
        return self.lines(self._rules, verdict)

    def _of_tier(self, rules: Sequence[Rule]) -> LimitFields | None:
        """Return what makes the lines of one tier, in a fifth of the time (bench: policies).

        None if a limit counts several keys of the request.
        """
        # Rules are the same objects for as long as the route has them, and are kept here as well.
        key = tuple([id(rule) for rule in rules])
        if key not in self._by_tier:
            if len(self._by_tier) >= _MAX_TIERS:
                self._by_tier.clear()
            self._by_tier[key] = LimitFields(rules) if _is_distinct(rules) else None
        return self._by_tier[key]

    def _written_out(self, rules: Sequence[Rule], verdict: Verdict) -> bytes:
        pairs: Collection[_Pair] = tuple(zip(rules, verdict.decisions, strict=True))
        if rules is not self._rules or not self._is_distinct:
            pairs = _one_of_each(pairs)
        wait = None if verdict.allowed else retry_after_s(verdict)
        items = [_item(*pair, verdict, wait) for pair in pairs if pair[0].policy.draft_headers]
        text = self._policy_line
        if self._is_keyed:
            text = _policy_line([rule for rule, _ in pairs])
        if items:
            text += f"RateLimit: {', '.join(items)}\r\n"
        legacy = [pair for pair in pairs if _has_legacy(pair[0])]
        if legacy:
            if self._rates or self._is_keyed:
                legacy = [pair for pair in legacy if not _is_in_flight(pair[0].limit)] or legacy
            text += _legacy(*_tightest(legacy), verdict, wait)
        return text.encode("ascii")

    def _fill_in(self, verdict: Verdict) -> bytes:
        allowed, _, _, _, remaining, reset_us, _ = verdict.decisions[0]
        reset = -(-reset_us // US)
        if not allowed:
            wait = seconds_up(verdict.retry_after_us)
            reset = max(reset, wait)
            if not self._has_legacy:
                return self._refused % wait if self._has_draft else b""
            return self._refused % ((wait, reset) if self._has_draft else reset)
        if not self._has_legacy:
            return self._template % remaining if self._has_draft else b""
        if not self._has_draft:
            return self._template % (remaining, reset)
        return self._template % (remaining, remaining, reset)

    def _fill_in_several(self, decisions: Sequence[Decision]) -> bytes:
        numbers = [decision.remaining for decision in decisions] if self._has_draft else []
        if self._has_legacy:
            if self._rates:
                decisions = [decisions[index] for index in self._rates]
            tightest = decisions[0]
            for decision in decisions:
                if decision.remaining < tightest.remaining or (
                    decision.remaining == tightest.remaining
                    and decision.reset_us > tightest.reset_us
                ):
                    tightest = decision
            numbers += (tightest.limit, tightest.remaining, -(-tightest.reset_us // US))
        return self._several % tuple(numbers)


def _is_distinct(rules: Sequence[Rule]) -> bool:
    """Return whether each limit is there once, and not for several keys."""
    return len({(rule.key, rule.policy.name) for rule in rules}) == len(rules)


def _policy_line(rules: Sequence[Rule]) -> str:
    items = [
        f'"{_string(rule.title)}";q={rule.limit.burst}{_unit(rule)}'
        for rule in rules
        if rule.policy.draft_headers
    ]
    return f"RateLimit-Policy: {', '.join(items)}\r\n" if items else ""


def _unit(rule: Rule) -> str:
    """Return what a quota is counted in: requests of a window, or requests in flight."""
    if _is_in_flight(rule.limit):
        return ';qu="concurrent-requests"'
    return f";w={_window(rule)}"


def _time(rule: Rule) -> str:
    """Return the window of an admitted request, none for requests in flight.

    For these it would mean the rate `r / t`, which no limit asks for.
    """
    if _is_in_flight(rule.limit):
        return ""
    window = _LONGEST_S[rule.limit.calendar] if rule.limit.calendar else _window(rule)
    return f";t={window}"


def _one_of_each(pairs: Iterable[_Pair]) -> Collection[_Pair]:
    """Return limits with their decisions; of several keys of a limit, the tightest."""
    found: dict[tuple[KeyOf, str], _Pair] = {}
    for pair in pairs:
        # Each limit of a policy has its own, whatever numbers a key overrides it with.
        line = pair[0].key, pair[0].policy.name
        before = found.get(line)
        found[line] = pair if before is None else _tightest([before, pair])
    return found.values()


def _tightest(pairs: Sequence[_Pair]) -> _Pair:
    """Return the most restrictive limit: of those that refused, the one with the longest wait."""
    tightest = pairs[0]
    for pair in pairs[1:]:
        if _room(pair[1]) < _room(tightest[1]):
            tightest = pair
    return tightest


def _room(decision: Decision) -> tuple[bool, int, int]:
    allowed, _, retry_after_us, _, remaining, reset_us, _ = decision
    if allowed:
        return True, remaining, -reset_us
    return False, -_FOREVER_US if retry_after_us == NEVER else -retry_after_us, -reset_us


def _has_legacy(rule: Rule) -> bool:
    return rule.policy.legacy_headers or rule.policy.throttlex_headers


def _item(rule: Rule, decision: Decision, verdict: Verdict, wait: int | None) -> str:
    if verdict.allowed:
        return f'"{_string(rule.title)}";r={decision.remaining}{_time(rule)}'
    if decision.allowed:
        return f'"{_string(rule.title)}";r={decision.remaining}'
    item = f'"{_string(rule.title)}";r=0'
    return item if wait is None else f"{item};t={wait}"


def _legacy(rule: Rule, decision: Decision, verdict: Verdict, wait: int | None) -> str:
    # Nothing may be sent after a refusal, whichever limit it was that refused.
    remaining = decision.remaining if verdict.allowed else 0
    text = f"X-RateLimit-Limit: {decision.limit}\r\nX-RateLimit-Remaining: {remaining}\r\n"
    if rule.policy.legacy_headers:
        reset = max(-(-decision.reset_us // US), wait or 0)
        return f"{text}X-RateLimit-Reset: {reset}\r\n"
    if not verdict.allowed:
        return text  # The refusal itself sends Retry-After.
    next_us = _next_us(rule.limit, decision)
    return text if next_us is None else f"{text}Retry-After: {-(-next_us // US)}\r\n"


def _next_us(limit: Limit, decision: Decision) -> int | None:
    """Return after how long one more request may pass; None if only the store knows."""
    if decision.remaining:
        return 0
    if limit.algorithm != "token_bucket":
        # The oldest request of a window leaves first, and only the newest is known.
        return None
    return max(0, decision.reset_us - (limit.tolerance_ns - limit.interval_ns) // NS_PER_US)


def _is_in_flight(limit: Limit) -> bool:
    return ALGORITHMS[limit.algorithm].renew is not None


def _window(rule: Rule) -> int:
    """Return the seconds in which the whole burst comes back, at least 1."""
    limit = rule.limit
    if limit.algorithm in ("token_bucket", "paced_history"):
        return max(1, -(-limit.tolerance_ns // (1000 * US)))
    return max(1, -(-limit.period_us // US))


@lru_cache(maxsize=1024)
def _string(text: str) -> str:
    """Return the content of a Structured Fields string (RFC 9651, section 3.3.3): ASCII only."""
    plain = text.encode("ascii", "replace").decode("ascii")
    return "".join(
        "\\" + character if character in '"\\' else character
        for character in plain
        if " " <= character <= "~"
    )
