"""Counters as Prometheus samples, in pieces small enough for an event loop.

prometheus-client encodes the text, a few hundred samples at a time: with thousands of routes a
scrape has megabytes, and encoding it in one step would delay all requests. The caller lets the
event loop run between the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.observe.metrics.counters import GatewayMetrics
from gateway.observe.metrics.table import TABLE

END_OF_OPENMETRICS: Final = b"# EOF\n"


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
        sections = (section.pieces(metrics) for section in TABLE)
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
