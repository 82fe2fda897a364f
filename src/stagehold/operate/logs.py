"""What an operator reads: one line at the start, one a minute, and alarms that do not drown each other.

Owns those lines. Nothing is said of a single request above debug: what happened to it is in the audit log, and
`stagehold audit explain` tells it. All counts come from the engine's statistics, so that every line has its counter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from stagehold import EngineConfig, Stats
from stagehold.machines.logs import AuditLog
from stagehold.operate.live.sources import of_snapshot
from stagehold.operate.snapshot import Feed, Snapshot

FIRST, EVERY = 3, 1000
"""Occurrences of an alarm that are told: the first ones, then each so many."""

MINUTE = 60.0
"""Seconds from summary to summary."""

log = logging.getLogger("stagehold")


class Repeating:
    """Alarms by name, each told on occurrences 1 to 3 and on each thousandth, with its count."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.counts: Counter[str] = Counter()

    def note(self, name: str, times: int, what: str) -> None:
        """`name` occurred `times` more; `what` is told if one of these is to be."""
        before = self.counts[name]
        self.counts[name] = now = before + times
        if times > 0 and (before < FIRST or before // EVERY < now // EVERY):
            self._tell(f"{name}: {what} (occurrence {now:,})")


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that an operator should know of; `count` is how often it has happened since the start."""

    name: str
    what: str
    count: Callable[[Stats], int]


def _taken(*counters: str) -> Callable[[Stats], int]:
    return lambda stats: sum(stats.count(counter).taken for counter in counters)


ALARMS = (
    Alarm("books wrong", "a ledger does not balance; see `violation` in the audit log", lambda stats: stats.violations),
    Alarm("store tripped", "too many operations of the store failed; it rests, and requests recompute",
          _taken("store_result_tripped", "store_probed_bad")),
    Alarm("false beliefs", "pages that were believed stored did not come back; something deletes or damages them",
          lambda stats: stats.wrong_beliefs),
    Alarm("backlog full", "writes are refused; the store is slower than new pages come", _taken("write_offer_full")),
    Alarm("writes given up", "admitted writes were not stored: failed too often, or waited too long",
          _taken("write_put_ended_spent", "write_timeout")),
)  # fmt: skip
"""In the order in which they are looked at."""


def start_line(config: EngineConfig) -> str:
    """What an engine starts with: the limits that decide most, each with its arithmetic."""
    pool, largest = config.device_pages, config.largest_request_pages
    pins = f"min({config.pin_fraction:g} x {pool}, {pool} - {largest})"
    fraction = config.load_limit_fraction
    shown = f"{fraction:g}" if fraction is not None else f"default of {config.host_memory_mode.value}"
    windows = "".join(
        f"; {one.name}: window {one.window_tokens} tokens = {one.window_pages(config.page_size)} pages, "
        f"staging {one.staging_pages}"
        for one in config.components
        if one.window_tokens
    )
    return (
        f"started: pages of {config.page_size} tokens; device {pool}, staging {config.staging_pages}, mode "
        f"{config.host_memory_mode.value}; pin cap {pins} = {config.pin_cap} pages; fetches {shown} of staging = "
        f"{config.load_limit_pages} pages; backlog {config.backlog_pages} pages; launches of a request "
        f"1 + {config.limits.retry_max_reissues} = {config.limits.issue_limit}{windows}"
    )


class Reporter:
    """Looks at a feed's snapshots and writes the lines. Call `look` after each tick, in the engine's thread.

    With `audit` the summary goes into that log as well, where `stagehold top` and `watch` find pools and rates.
    """

    def __init__(self, feed: Feed, audit: AuditLog | None = None, *, seconds: float = MINUTE) -> None:
        self._feed = feed
        self._audit = audit
        self._seconds = seconds
        self._seen = feed.latest
        self._said = feed.latest
        self.alarms = Repeating(log.warning)
        log.info("%s", start_line(feed.engine.config))

    def look(self) -> None:
        """Write what is due; without a new snapshot, nothing is."""
        found = self._feed.latest
        if found is self._seen:
            return
        for alarm in ALARMS:
            self.alarms.note(alarm.name, alarm.count(found.stats) - alarm.count(self._seen.stats), alarm.what)
        self._seen = found
        if found.at - self._said.at >= self._seconds:
            self.summary()

    def summary(self) -> None:
        """Write the summary now: what has happened since the last one."""
        found, before = self._feed.publish(), self._said
        self._said = self._seen = found
        log.info("%s", summary_line(found, before))
        if self._audit is not None:
            self._audit.summary(found.tick, **of_snapshot(found))


def summary_line(found: Snapshot, before: Snapshot) -> str:
    """What happened between two snapshots, in one line."""
    now, then = found.stats, before.stats
    admitted = now.admitted.requests - then.admitted.requests
    queried, spliced = now.queried - then.queried, now.spliced - then.spliced
    share = f" ({100 * spliced / queried:.0f} %)" if queried else ""
    waiting = sum(now.states.get(f"request.{state}", 0) for state in ("queued", "lookup", "staged", "retry", "capped"))
    return (
        f"tick {found.tick:,}: admitted {admitted:,}; store and host memory: found {queried:,} tokens, reused "
        f"{spliced:,}{share}; waiting {waiting:,}, running {now.states.get('request.committed', 0):,}; stored "
        f"{now.stored_pages - then.stored_pages:,} pages, backlog {now.backlog_pages:,}; store "
        f"{found.attachment.name.lower()}, breaker {found.breaker}"
    )
