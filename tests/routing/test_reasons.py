"""Why a request takes one route and not another: the words agree with the table."""

from __future__ import annotations

from hypothesis import given

from gateway.base.errors import BadRequestError
from gateway.routing.conditions import by_sender
from gateway.routing.path import canonical_path
from gateway.routing.pattern import Pattern
from gateway.routing.reasons import RoutedRequest, why_before, why_not, why_not_from
from gateway.routing.sender import ANYONE, Sender
from gateway.routing.table import RouteTable
from tests.routing.test_keys import Request as View
from tests.routing.test_sender import LISTS, SENDERS, VIEWS
from tests.routing.test_table import NONE, PATTERNS, REQUESTS, ROUTES, Request


def _routed(request: Request) -> RoutedRequest:
    host, path, method, headers = request
    return RoutedRequest(host, canonical_path(path), method, headers)


@given(PATTERNS, REQUESTS)
def test_a_reason_is_given_where_the_route_does_not_match(
    pattern: Pattern, request: Request
) -> None:
    """There is a reason if and only if a table with this one route finds none."""
    routed = _routed(request)
    try:
        found = RouteTable([(pattern, True)]).match(*routed)
    except BadRequestError:
        found = None

    assert (why_not(pattern, routed) is None) == (found is True)


@given(ROUTES, REQUESTS)
def test_the_chosen_route_comes_before_all_others_that_match(
    patterns: list[Pattern], request: Request
) -> None:
    """Whatever matches as well is less specific, or comes later in the file."""
    routed = _routed(request)
    chosen = RouteTable([(pattern, index) for index, pattern in enumerate(patterns)]).match(*routed)
    if chosen is None:
        return
    for index, pattern in enumerate(patterns):
        if index == chosen or why_not(pattern, routed) is not None:
            continue
        reason = why_before(patterns[chosen], pattern)
        assert patterns[chosen].specificity <= pattern.specificity
        assert (reason == "comes first in the file") == (
            patterns[chosen].specificity == pattern.specificity
        )


@given(SENDERS, VIEWS)
def test_a_reason_is_given_where_a_sender_does_not_match(sender: Sender, view: View) -> None:
    """There is a reason if and only if the compiled conditions do not hold."""
    told = why_not_from(sender, view, LISTS)

    assert (told is None) == (sender == ANYONE or by_sender(sender, LISTS)(view))
    assert told is None or "v1" not in told.text


def test_a_condition_on_a_field_does_not_show_its_value() -> None:
    """The value of a condition may be a secret: only its name is told."""
    pattern = Pattern(None, "/**", (), (("X-Secret", "hunter2"),))

    mismatch = why_not(pattern, _routed(("a.test", "/", "GET", NONE)))

    assert mismatch is not None
    assert mismatch.text == "requires another value of the field X-Secret"
