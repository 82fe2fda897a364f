"""Serves `/healthz`, `/readyz` and `/metrics` of one engine, from a thread of its own; to this machine by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus

import orjson

from stagehold.operate.health import Health, Policy, Vitals
from stagehold.operate.measures import constant_labels
from stagehold.operate.snapshot import Feed
from stagehold.operate.web import Page, Place, Web

TEXT = "text/plain; charset=utf-8"


def serve(
    feed: Feed, place: Place | None = None, policy: Policy | None = None, labels: Mapping[str, str] | None = None
) -> Web:
    """Serve at `place` until the `Web` is closed; `labels`, such as the rank, stand at every metric.

    ValueError for labels that no scrape could be read with.
    """
    vitals, constant = Vitals(feed, policy), constant_labels(labels)
    pages = {
        "/healthz": lambda: _told(vitals.alive),
        "/readyz": lambda: _told(vitals.ready),
        "/metrics": lambda: _metrics(feed, constant),
    }
    return Web(place or Place(), pages)


def _told(judged: Callable[[], Health]) -> Page:
    """200 or 503, with the reasons."""
    health = judged()
    status = HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(orjson.dumps(asdict(health)) + b"\n", "application/json", status)


def _metrics(feed: Feed, labels: Mapping[str, str]) -> Page:
    try:
        from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

        from stagehold.operate.metrics import exposition
    except ImportError as error:
        told = f"metrics need the package 'prometheus_client' ({error}): pip install 'stagehold[metrics]'\n"
        return Page(told.encode(), TEXT, HTTPStatus.NOT_IMPLEMENTED)
    return Page(exposition(feed, labels), CONTENT_TYPE_PLAIN_0_0_4)
