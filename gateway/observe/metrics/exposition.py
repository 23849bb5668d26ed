"""Counters as text for Prometheus, in pieces.

The text is made piece by piece, each a family or as much of a large one as has some 160 samples: a
gateway of thousands of routes has a scrape of megabytes, and encoding that in one step would hold
up every request. The admin listener lets the event loop run between the pieces. Pieces may be
empty: children that have nothing to show take time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain, islice
from typing import Any, Final, NamedTuple, TypeVar

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.observe.metrics.counters import GatewayMetrics, Histogram
from gateway.observe.metrics.families import Family, Labels, Section, Value
from gateway.observe.metrics.table import TABLE

END_OF_OPENMETRICS: Final = b"# EOF\n"
SAMPLES_PER_PIECE: Final = 160
"""A piece ends at this many samples, which take about a millisecond."""
CHILDREN_PER_PIECE: Final = 256
"""How many children are examined for one piece, whether they have samples or not."""

_TYPES: Final[dict[str, Callable[..., Metric]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "info": InfoMetricFamily,
}

T = TypeVar("T")


class Exposition(NamedTuple):
    """The response to a scrape; the pieces are made one by one, as they are consumed."""

    content_type: str
    pieces: Iterator[bytes]


def expose(metrics: GatewayMetrics, accept: str = "", others: Iterable[Metric] = ()) -> Exposition:
    """Return all samples as text, in the format that an `Accept` header asks for.

    The format is OpenMetrics 1.0 if the header names it, otherwise the classic text format.
    Families from elsewhere, such as those of the process, come first.
    """
    encode, form = choose_encoder(accept)

    def pieces() -> Iterator[bytes]:
        last_name = ""
        sections = (_section(section, metrics) for section in TABLE)
        for metric in chain(others, chain.from_iterable(sections)):
            if metric is None:  # a pause
                yield b""
                continue
            text = encode(_Single(metric)).removesuffix(END_OF_OPENMETRICS)
            # A family of several pieces has its HELP and TYPE only once.
            yield text if metric.name != last_name else _without_head(text)
            last_name = metric.name
        if form.startswith("application/openmetrics-text"):
            yield END_OF_OPENMETRICS

    return Exposition(form, pieces())


def content_type(accept: str) -> str:
    """Return the format that an `Accept` header asks for."""
    return choose_encoder(accept)[1]


def render(metrics: GatewayMetrics, accept: str = "") -> bytes:
    """Return all samples as one text, for programs without an event loop."""
    return b"".join(expose(metrics, accept).pieces)


def _section(section: Section[T], metrics: GatewayMetrics) -> Iterator[Metric | None]:
    """All families of a section in pieces; None to pause."""
    refresh = section.kind.refresh
    if refresh is not None and section.is_first:
        for place, (_, child) in enumerate(section.children(metrics), start=1):
            refresh(child)
            if place % CHILDREN_PER_PIECE == 0:
                yield None
    for family in section.families:
        yield from _family(family, section, metrics)


def _family(
    family: Family[T], section: Section[T], metrics: GatewayMetrics
) -> Iterator[Metric | None]:
    children = iter(section.children(metrics))
    make, is_shown = _TYPES[family.type], section.is_shown
    for first in children:
        piece = make(family.name, family.text, labels=(*section.kind.labels, *family.labels))
        for labels, child in chain((first,), islice(children, CHILDREN_PER_PIECE - 1)):
            if is_shown is None or is_shown(child, metrics, labels):
                for more, value in family.samples(child):
                    _add(piece, (*labels, *((more,) if isinstance(more, str) else more)), value)
            if len(piece.samples) >= SAMPLES_PER_PIECE:
                break
        yield piece


def _add(piece: Any, labels: Labels, value: Value) -> None:
    if isinstance(value, Histogram):
        bounds = (*(str(bound / 1e6) for bound in value.bounds_us), "+Inf")
        # Prometheus buckets are cumulative.
        buckets = list(zip(bounds, accumulate(value.counts), strict=True))
        piece.add_metric(labels, buckets, value.sum_us / 1e6)
    else:
        piece.add_metric(labels, value)


class _Single(Collector):
    """A family in the form that prometheus-client reads."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _without_head(text: bytes) -> bytes:
    while text.startswith(b"# "):
        text = text.partition(b"\n")[2]
    return text
