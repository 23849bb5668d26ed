"""Families of samples: the name of each, and the samples of a child.

A child is one of the counted objects, such as a route. A family with many children is made in
pieces of the same name, small enough for an event loop. Pieces may be empty: children without
samples take time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from gateway.observe.metrics.counters import GatewayMetrics, Histogram

SAMPLES_PER_PIECE: Final = 160
"""A piece ends at this many samples, which take about a millisecond."""
CHILDREN_PER_PIECE: Final = 256
"""How many children are examined for one piece, whether they have samples or not."""

T = TypeVar("T")

Labels = tuple[str, ...]


class Family(NamedTuple, Generic[T]):
    """One family.

    Attributes:
        kind: makes a piece without samples.
        name: the name in Prometheus, without `_total`.
        text: what it counts.
        labels: the names of its labels besides those of the children.
        add: adds the samples of a child to a piece, given the values of the child's labels.
    """

    kind: Callable[..., Metric]
    name: str
    text: str
    labels: Labels
    add: Callable[[Any, Labels, T], None]


class Section(NamedTuple, Generic[T]):
    """Families with the same children.

    Attributes:
        labels: the names of the labels that identify a child.
        children: the values of these labels and the child, one by one; more may be added meanwhile.
        families: in the order in which they are shown.
        is_shown: whether a child has samples; None if it always has.
        refresh: called for each child first; updates values that change with time.
    """

    labels: Labels
    children: Callable[[GatewayMetrics], Iterable[tuple[Labels, T]]]
    families: tuple[Family[T], ...]
    is_shown: Callable[[T], object] | None = None
    refresh: Callable[[T], None] | None = None

    def pieces(self, metrics: GatewayMetrics) -> Iterator[Metric | None]:
        """Yield all families in pieces, and None for a pause."""
        if self.refresh is not None:
            for place, (_, child) in enumerate(self.children(metrics), start=1):
                self.refresh(child)
                if place % CHILDREN_PER_PIECE == 0:
                    yield None
        for family in self.families:
            yield from self._pieces_of(family, iter(self.children(metrics)))

    def _pieces_of(
        self, family: Family[T], children: Iterator[tuple[Labels, T]]
    ) -> Iterator[Metric]:
        for first in children:
            piece = family.kind(family.name, family.text, labels=(*self.labels, *family.labels))
            for labels, child in chain((first,), islice(children, CHILDREN_PER_PIECE - 1)):
                if self.is_shown is None or self.is_shown(child):
                    family.add(piece, labels, child)
                if len(piece.samples) >= SAMPLES_PER_PIECE:
                    break
            yield piece


def counter(name: str, text: str, number: Callable[[T], float]) -> Family[T]:
    """Define a counter with one sample per child."""
    return Family(CounterMetricFamily, name, text, (), _one(number))


def gauge(name: str, text: str, number: Callable[[T], float]) -> Family[T]:
    """Define a gauge with one sample per child."""
    return Family(GaugeMetricFamily, name, text, (), _one(number))


def _one(number: Callable[[T], float]) -> Callable[[Any, Labels, T], None]:
    return lambda piece, labels, child: piece.add_metric(labels, number(child))


Numbers = Iterable[tuple[str | Labels, float]]
"""Numbers with the value of one more label, or of several."""


def counters(name: str, text: str, labels: Labels, numbers: Callable[[T], Numbers]) -> Family[T]:
    """Define a counter with several samples per child, by further labels."""
    return Family(CounterMetricFamily, name, text, labels, _each(numbers))


def gauges(name: str, text: str, labels: Labels, numbers: Callable[[T], Numbers]) -> Family[T]:
    """Define a gauge with several samples per child, by further labels."""
    return Family(GaugeMetricFamily, name, text, labels, _each(numbers))


def _each(numbers: Callable[[T], Numbers]) -> Callable[[Any, Labels, T], None]:
    def add(piece: Any, labels: Labels, child: T) -> None:
        for key, number in numbers(child):
            more = (key,) if isinstance(key, str) else key
            piece.add_metric((*labels, *more), number)

    return add


def histogram(name: str, text: str, of: Callable[[T], Histogram]) -> Family[T]:
    """Define a histogram for each child that has counted something."""

    def add(piece: Any, values: Labels, child: T) -> None:
        counted = of(child)
        if any(counted.counts):
            bounds = (*(str(bound / 1e6) for bound in counted.bounds_us), "+Inf")
            # Prometheus buckets are cumulative.
            buckets = list(zip(bounds, accumulate(counted.counts), strict=True))
            piece.add_metric(values, buckets, counted.sum_us / 1e6)

    return Family(HistogramMetricFamily, name, text, (), add)


def info(name: str, text: str, value: Callable[[T], dict[str, str]]) -> Family[T]:
    """Define texts as labels of a sample that is always 1."""

    def add(piece: Any, labels: Labels, child: T) -> None:
        piece.add_metric(labels, value(child))

    return Family(InfoMetricFamily, name, text, (), add)
