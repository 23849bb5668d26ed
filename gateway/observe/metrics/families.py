"""Families of samples with a label: what each is called, and what its children count.

A family of many children is made in pieces of the same name, small enough for an event loop. Pieces
may be empty: children that have nothing to show take time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from gateway.observe.metrics.counters import Histogram

SAMPLES_PER_PIECE: Final = 160
"""A piece with so many samples has no more children: about a millisecond."""
CHILDREN_PER_PIECE: Final = 256
"""How many children are looked at for one piece, whether they have samples or not."""

T = TypeVar("T")
M = TypeVar("M", bound=Metric)

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

    def empty(self) -> CounterMetricFamily | GaugeMetricFamily:
        """A piece without samples."""
        return self.kind(self.name, self.text, labels=self.labels)

    def add(self, piece: CounterMetricFamily | GaugeMetricFamily, name: str, child: T) -> None:
        """Put the samples of a child into a piece."""
        for values, number in self.samples(name, child):
            piece.add_metric(values, number)


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


def once(is_in_use: Callable[[str, T], object], family: Family[T]) -> Family[T]:
    """The same family, without the children that are not in use yet."""
    return family._replace(
        samples=lambda name, of: family.samples(name, of) if is_in_use(name, of) else ()
    )


def pieces_of(children: Mapping[str, T], families: Iterable[Family[T]]) -> Iterator[Metric]:
    """Every family of some children, in pieces of the same name."""
    for family in families:
        yield from in_pieces(children.items(), family.empty, family.add)


def histograms(
    children: Mapping[str, T], name: str, text: str, label: str, of: Callable[[T], Histogram]
) -> Iterator[Metric]:
    """A histogram of each child that has counted something, in pieces of the same name."""

    def add(piece: HistogramMetricFamily, child: str, counted: T) -> None:
        histogram = of(counted)
        if any(histogram.counts):
            bounds = (*(str(bound / 1e6) for bound in histogram.bounds_us), "+Inf")
            # Prometheus wants, for each bucket, everything at or below its bound.
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            piece.add_metric((child,), buckets, histogram.sum_us / 1e6)

    yield from in_pieces(
        children.items(), lambda: HistogramMetricFamily(name, text, labels=(label,)), add
    )


def in_pieces(
    children: Iterable[tuple[str, T]], empty: Callable[[], M], add: Callable[[M, str, T], None]
) -> Iterator[M]:
    """Some children, in pieces that hold nobody up.

    Args:
        children: each with its name; they are copied, since more may come between two pieces.
        empty: makes a piece.
        add: puts a child into a piece.
    """
    items = list(children)
    begin = 0
    while begin < len(items):
        piece = empty()
        end = min(begin + CHILDREN_PER_PIECE, len(items))
        while begin < end and len(piece.samples) < SAMPLES_PER_PIECE:
            add(piece, *items[begin])
            begin += 1
        yield piece
