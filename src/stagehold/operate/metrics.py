"""The measures as Prometheus reads them: a collector over the last snapshot of a feed, and the page that lists them.

A scrape reads one reference and computes everything from it, so all series of a scrape are of one moment, and the
engine's thread is never asked. Needs the extra `metrics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isinf

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stagehold.machines.matrix import table
from stagehold.operate.measures import SECTIONS, Kind, Measure, constant_labels
from stagehold.operate.snapshot import BOUNDS, Feed, Snapshot, Times

PREFIX = "stagehold_"


def exposed(measure: Measure) -> str:
    """The name in a scrape, as queries write it; a histogram's has `_bucket`, `_sum` and `_count` behind."""
    return f"{PREFIX}{measure.name}{'_total' if measure.kind is Kind.COUNTER else ''}"


class StageholdCollector(Collector):
    """All measures of the engine behind `feed`. `constant` labels are added to every series."""

    def __init__(self, feed: Feed, constant: Mapping[str, str] | None = None) -> None:
        self._feed = feed
        self._constant = constant_labels(constant)

    def collect(self) -> Iterator[Metric]:
        """Every series, of one moment."""
        seen = self._feed.latest
        for _, measures in SECTIONS:
            for measure in measures:
                yield self._family(measure, seen)

    def _family(self, measure: Measure, seen: Snapshot) -> Metric:
        name, text = f"{PREFIX}{measure.name}", f"{measure.unit}: {measure.moves}"
        labels, fixed = [*self._constant, *measure.labels], [*self._constant.values()]
        values = measure.read(seen)
        if isinstance(values, Times):
            histogram = HistogramMetricFamily(name, text, labels=labels)
            histogram.add_metric(fixed, _buckets(values), values.sum)
            return histogram
        family = (CounterMetricFamily if measure.kind is Kind.COUNTER else GaugeMetricFamily)(name, text, labels=labels)
        for own, value in values.items():
            family.add_metric([*fixed, *own], value)
        return family


def _buckets(times: Times) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as the exposition wants them."""
    found, total = [], 0
    for bound, count in zip((*BOUNDS, float("inf")), times.counts, strict=True):
        total += count
        found.append(("+Inf" if isinf(bound) else str(bound), float(total)))
    return found


def exposition(feed: Feed, constant: Mapping[str, str] | None = None) -> bytes:
    """One scrape in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StageholdCollector(feed, constant))
    return generate_latest(registry)


HEAD = """# Metrics

<!-- Generated from the measures by `stagehold metrics reference`; a test compares it. -->

Every statistic of an engine, as `stagehold.operate.metrics` gives it to Prometheus (extra `metrics`). All series of one
scrape are of one moment, the end of a tick, and exist from the first scrape on; what has not happened yet is 0.
[operations](operations.md) says how they are served, [alerts](alerts.yml) has rules on them, and the labels of
`counter` are told one by one on the page of [counters](machines/counters.md)."""


def page() -> str:
    """The whole of docs/metrics.md."""
    parts = [HEAD]
    for title, measures in SECTIONS:
        rows = [
            (f"`{exposed(one)}`", ", ".join(f"`{label}`" for label in one.labels) or "-", one.kind, one.unit, one.moves)
            for one in measures
        ]
        parts += [f"## {title}", table(("metric", "labels", "kind", "unit", "moves"), rows)]
    return "\n\n".join(parts) + "\n"
