"""Families of samples with a label: what each is called, and what its children count.

A family of many children is made in pieces of the same name, small enough for an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, islice
from typing import Final, Generic, NamedTuple, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from gateway.metrics.counters import Histogram

CHILDREN_PER_PIECE: Final = 16
"""Labelled children encoded in one go; as histograms they are some 300 samples, about 2 ms."""

T = TypeVar("T")

Samples = Iterable[tuple[tuple[str, ...], float]]
"""The values of the labels, and the number."""


class Family(NamedTuple, Generic[T]):
    """A counter or gauge of labelled children.

    Attributes:
        kind: which of the two.
        name: as Prometheus shows it, without `_total`.
        text: what it counts.
        labels: the names of its labels.
        samples: from a child's name and itself to its samples.
    """

    kind: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[str, T], Samples]

    def of(self, children: Iterable[tuple[str, T]]) -> Metric:
        """The samples of some children."""
        family = self.kind(self.name, self.text, labels=self.labels)
        for name, child in children:
            for values, number in self.samples(name, child):
                family.add_metric(values, number)
        return family


def counter(name: str, text: str, label: str, number: Callable[[T], float]) -> Family[T]:
    """A counter with one sample for each child."""
    return Family(
        CounterMetricFamily, name, text, (label,), lambda child, of: [((child,), number(of))]
    )


def gauge(name: str, text: str, label: str, number: Callable[[T], float]) -> Family[T]:
    """A gauge with one sample for each child."""
    return Family(
        GaugeMetricFamily, name, text, (label,), lambda child, of: [((child,), number(of))]
    )


def counted_by(
    name: str, text: str, labels: tuple[str, str], counts: Callable[[T], Mapping[str, int]]
) -> Family[T]:
    """A counter with a sample for each child and whatever it tells apart."""

    def samples(child: str, of: T) -> Samples:
        return (((child, key), count) for key, count in sorted(counts(of).items()))

    return Family(CounterMetricFamily, name, text, labels, samples)


def counted_by_pair(
    name: str,
    text: str,
    labels: tuple[str, str, str],
    counts: Callable[[T], Mapping[tuple[str, str], int]],
) -> Family[T]:
    """A counter with a sample for each child and whatever two things tell apart."""

    def samples(child: str, of: T) -> Samples:
        return (((child, *keys), count) for keys, count in sorted(counts(of).items()))

    return Family(CounterMetricFamily, name, text, labels, samples)


def pieces_of(children: Mapping[str, T], families: Iterable[Family[T]]) -> Iterator[Metric]:
    """Every family of some children, in pieces of the same name."""
    for family in families:
        for piece in slices(children):
            yield family.of(piece)


def histograms(
    children: Mapping[str, T], name: str, text: str, label: str, of: Callable[[T], Histogram]
) -> Iterator[Metric]:
    """A histogram of each child, in pieces of the same name."""
    for piece in slices(children):
        family = HistogramMetricFamily(name, text, labels=(label,))
        for child, counted in piece:
            histogram = of(counted)
            bounds = (*(str(bound / 1e6) for bound in histogram.bounds_us), "+Inf")
            # Prometheus wants, for each bucket, everything at or below its bound.
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            family.add_metric((child,), buckets, histogram.sum_us / 1e6)
        yield family


def slices(children: Mapping[str, T]) -> Iterator[list[tuple[str, T]]]:
    """Children in pieces; a copy, since some may be added between two pieces."""
    items = iter(list(children.items()))
    while piece := list(islice(items, CHILDREN_PER_PIECE)):
        yield piece
