"""Families of samples: their names, their counters, and how those of processes are joined.

A child is one of the things that are counted, such as a route; a kind of them, such as all routes,
has the same counters each. A family shows one of these counters, so the table of families
(`table`) says as well what the processes of one gateway know of each other (`plain`, `shared`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import add, and_, or_
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gateway.observe.metrics.counters import GatewayMetrics, Histogram

T = TypeVar("T")

Labels = tuple[str, ...]

Value = float | Histogram | Mapping[str, str]
"""What is shown in a sample; texts are labels of a sample that is always 1."""

Samples = Iterable[tuple[str | Labels, Value]]
"""Values and what tells them apart: the value of one more label, or of several."""


class Join(NamedTuple):
    """How the counters of one process are added to a sum.

    Attributes:
        add: the sum so far and the counter of a process to the new sum.
        is_lasting: whether it counts once the process is gone. Such counters are in memory that
            others can read (`shared`): numbers that begin at 0, `COUNTS` and `TIMES`.
        plain: a counter that does not last as it is written in JSON, which `add` takes.
    """

    add: Callable[[Any, Any], Any]
    is_lasting: bool
    plain: Callable[[Any], Any] = lambda value: value


def _if_known(total: float | None, received: float | None) -> float | None:
    return total if received is None else (total or 0) + received


def _add_pairs(total: defaultdict[Any, int], received: Iterable[tuple[Any, int]]) -> Any:
    for key, count in received:
        total[key] += count
    return total


def _first(total: dict[str, int], received: Iterable[tuple[str, int]]) -> Any:
    for key, value in received:
        total[key] = min(total.get(key, value), value)
    return total


def _add_times(total: Histogram, received: Iterable[int]) -> Histogram:
    total.cells = [*map(add, total.cells, received)]
    return total


BREAKER_STATES: Final = ("closed", "half_open", "open")

_BREAKERS: Final = ("", *BREAKER_STATES)
"""From the best to the worst; empty for no breaker."""


def _worst(total: str, received: str) -> str:
    return max(total, received, key=_BREAKERS.index)


COUNT: Final = Join(add, is_lasting=True)
EVER: Final = Join(or_, is_lasting=True)
COUNTS: Final = Join(_add_pairs, is_lasting=True)
TIMES: Final = Join(_add_times, is_lasting=True)
SUM: Final = Join(add, is_lasting=False)
SUM_IF_KNOWN: Final = Join(_if_known, is_lasting=False)
EVERY: Final = Join(and_, is_lasting=False)
SOME: Final = Join(or_, is_lasting=False)
MOST: Final = Join(max, is_lasting=False)
FIRST: Final = Join(_first, is_lasting=False, plain=lambda times: list(times.items()))
WORST: Final = Join(_worst, is_lasting=False)


class Field(NamedTuple):
    """A counter of every child.

    Attributes:
        name: of the attribute.
        join: how those of several processes become one.
    """

    name: str
    join: Join


class Family(NamedTuple, Generic[T]):
    """One family.

    Attributes:
        type: `counter`, `gauge`, `histogram` or `info`.
        name: as Prometheus shows it, without `_total`.
        text: what it counts.
        labels: the names of its labels besides those of the children.
        fields: the counters that it is made of; none if each process has its own.
        samples: of a child.
    """

    type: str
    name: str
    text: str
    labels: Labels
    fields: tuple[Field, ...]
    samples: Callable[[T], Samples]


class ChildKind(NamedTuple, Generic[T]):
    """Children with the same counters.

    Attributes:
        name: of the kind, for other processes.
        labels: the names of the labels that tell the children apart.
        children: the values of these labels and the child, taken one by one; more may come
            meanwhile.
        child: the child with these labels, made when first asked for.
        refresh: called before a child is shown or sent; sets what changed with time.
    """

    name: str
    labels: Labels
    children: Callable[[GatewayMetrics], Iterable[tuple[Labels, T]]]
    child: Callable[..., T]
    refresh: Callable[[T], None] | None = None


class Section(NamedTuple, Generic[T]):
    """Families with the same children.

    Attributes:
        kind: of the children.
        families: in the order in which they are shown.
        among: which children the families are about; None for all.
        is_shown: whether there is anything to show of such a child, given all metrics and the
            child's labels; None if there always is.
        is_first: whether this is the first section that needs the children refreshed.
        unshown: counters that no family shows.
    """

    kind: ChildKind[T]
    families: tuple[Family[T], ...]
    among: Callable[[T], object] | None = None
    is_shown: Callable[[T, GatewayMetrics, Labels], object] | None = None
    is_first: bool = False
    unshown: tuple[Field, ...] = ()

    def children(self, metrics: GatewayMetrics) -> Iterable[tuple[Labels, T]]:
        """Those that the families are about."""
        among, children = self.among, self.kind.children(metrics)
        return children if among is None else (one for one in children if among(one[1]))


def counter(name: str, text: str, field: str, value: Callable[[Any], float] = float) -> Family[Any]:
    """Define a counter with one sample per child."""
    return Family("counter", name, text, (), (Field(field, COUNT),), _one(field, value))


def gauge(
    name: str,
    text: str,
    field: str,
    join: Join | None = SUM,
    value: Callable[[Any], float] = float,
) -> Family[Any]:
    """A gauge with one sample for each child; each process has its own if there is no `join`."""
    fields = () if join is None else (Field(field, join),)
    return Family("gauge", name, text, (), fields, _one(field, value))


def _one(field: str, value: Callable[[Any], float]) -> Callable[[Any], Samples]:
    return lambda of: (((), value(getattr(of, field))),)


def counters(
    name: str,
    text: str,
    labels: Labels,
    field: str,
    join: Join = COUNTS,
    samples: Callable[[Any], Samples] | None = None,
) -> Family[Any]:
    """A counter with a sample for each child and whatever it tells apart; by default all keys."""
    return _many("counter", name, text, labels, field, join, samples)


def gauges(
    name: str,
    text: str,
    labels: Labels,
    field: str,
    join: Join,
    samples: Callable[[Any], Samples] | None = None,
) -> Family[Any]:
    """A gauge, likewise."""
    return _many("gauge", name, text, labels, field, join, samples)


def _many(
    type_: str,
    name: str,
    text: str,
    labels: Labels,
    field: str,
    join: Join,
    samples: Callable[[Any], Samples] | None,
) -> Family[Any]:
    show = samples or (lambda counts: sorted(counts.items()))
    return Family(
        type_, name, text, labels, (Field(field, join),), lambda of: show(getattr(of, field))
    )


def histogram(name: str, text: str, field: str) -> Family[Any]:
    """Define a histogram for each child that has counted something."""

    def samples(of: Any) -> Samples:
        times: Histogram = getattr(of, field)
        return (((), times),) if any(times.counts) else ()

    return Family("histogram", name, text, (), (Field(field, TIMES),), samples)


def info(name: str, text: str, value: Callable[[T], Mapping[str, str]]) -> Family[T]:
    """Define texts as labels of a sample that is always 1."""
    return Family("info", name, text, (), (), lambda of: (((), value(of)),))
