"""Compiles what requests cost under the policies of a route."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import BadRequestError
from gateway.config.models.costs import SIZE, statuses
from gateway.config.models.gateway import PolicyConfig
from gateway.config.models.lists import read_key
from gateway.limiter.costs import CostedPlan, Costs
from gateway.limiter.plan import Plan
from gateway.limits.expression import Evaluate, Expression, Value, as_cost, as_number
from gateway.routing.keys import Readers, reader_of
from gateway.routing.values import AMBIGUOUS

if TYPE_CHECKING:
    from gateway.proxy.answer_meter import EndedAnswer

_is_length: Final = re.compile(r"[0-9]{1,15}").fullmatch


def with_costs(
    plan: Plan, names: Sequence[str], policies: Mapping[str, PolicyConfig], readers: Readers
) -> Plan:
    """Return a plan with the costs that its policies state; the plan itself if none does.

    Args:
        plan: the plan.
        names: its policies, with their candidates.
        policies: all policies.
        readers: of keys that depend on the route or the configuration.
    """
    found = {name: costs for name in names if (costs := compile_costs(policies[name], readers))}
    return CostedPlan(plan, found) if found else plan


def compile_costs(config: PolicyConfig, readers: Readers) -> Costs | None:
    """Return what the requests of a policy cost; None if it does not say so."""
    cost = config.cost
    if not cost.is_own and not config.count_when:
        return None
    settle = cost.settle
    return Costs(
        _compile_reserve(cost.reserve, readers) if cost.is_own else None,
        None if settle is None else _compile_settle(settle),
        statuses(config.count_when) if config.count_when else None,
        () if settle is None else tuple(fields_of(settle)),
    )


def fields_of(settle: Expression) -> list[str]:
    """Return the fields of a body in JSON that decide about a cost."""
    return [name.removeprefix("json:") for name in settle.names if name.startswith("json:")]


def _compile_reserve(expression: Expression, readers: Readers) -> Callable[[Any], int]:
    constant = expression.constant
    if constant is not None:
        return lambda _: constant
    evaluate = expression.compile(lambda name: _of_request(name, readers))
    return lambda request: max(as_cost(evaluate(request)) or 1, 1)


def _of_request(name: str, readers: Readers) -> Evaluate:
    if name == SIZE:
        return _size
    word = read_key(name)
    read = reader_of(word, readers)

    def number(request: Any) -> Value:
        value = read(request)
        if value is AMBIGUOUS or isinstance(value, list):
            title = f"The request has several values of what its cost depends on: {word}"
            raise BadRequestError(title, kind="key")
        return as_number(value)

    return number


def _size(request: Any) -> Value:
    """Return the length of the body that a request announces; None if it does not."""
    if "Transfer-Encoding" in request.headers:
        return None
    text = request.headers.get("Content-Length", "0")
    return float(text) if _is_length(text) else None


def _compile_settle(expression: Expression) -> Callable[[Any], int | None]:
    evaluate = expression.compile(_of_answer)
    return lambda answer: as_cost(evaluate(answer))


def _of_answer(name: str) -> Evaluate:
    kind, _, rest = name.partition(":")
    if kind == "header":
        return _header(rest)
    if kind == "json":

        def in_body(answer: EndedAnswer) -> Value:
            return answer.numbers.get(rest)

        return in_body
    return _PLAIN[name]


_PLAIN: Final[dict[str, Evaluate]] = {
    "status": lambda answer: float(answer.status) or None,
    "bytes": lambda answer: float(answer.sent),
    "duration": lambda answer: answer.duration_s,
    "reserve": lambda answer: float(answer.reserved),
}


def _header(name: str) -> Evaluate:
    lines = re.compile(rb"\r\n(?i:%b):[ \t]*([^\r\n]*)" % re.escape(name).encode("ascii")).findall

    def number(answer: EndedAnswer) -> Value:
        values = set(lines(answer.fields))
        return as_number(values.pop().decode("latin-1")) if len(values) == 1 else None

    return number
