"""What Prometheus scrapes: every series, of one moment, also while the engine is busy; and the rules on them."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.operate.endpoint import serve
from stagehold.operate.measures import MEASURES, Kind, series
from stagehold.operate.metrics import PREFIX, exposed, exposition
from stagehold.operate.snapshot import Feed
from stagehold.testing.hand import Hand
from stagehold.testing.storm import Storm

DOCS = Path(__file__).resolve().parents[2] / "docs"
RULES = yaml.safe_load((DOCS / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]


def scraped(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name and by labels in their order."""
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name][tuple(sample.labels.values())] = sample.value
    return found


@pytest.fixture
def feed():
    with Hand() as h:
        feed = Feed(h.engine, pace_seconds=0)
        for _ in range(3):
            feed.tick()
        yield feed


def test_a_scrape_has_every_series_with_its_value(feed):
    """Those of the table, under their exposed names."""
    found = scraped(exposition(feed))
    for measure in MEASURES:
        values = {labels: value for (name, labels), value in series(feed.latest).items() if name == measure.name}
        own = found[exposed(measure) + ("_count" if measure.kind is Kind.HISTOGRAM else "")]
        assert values == own, measure.name


def test_a_histogram_is_cumulative(feed):
    """Its last bucket is its count."""
    found = scraped(exposition(feed))
    buckets = list(found["stagehold_tick_seconds_bucket"].values())
    assert sorted(buckets) == buckets
    assert found["stagehold_tick_seconds_count"][()] == buckets[-1] == 3
    assert 0 < found["stagehold_tick_seconds_sum"][()] < 1
    assert 2 == found["stagehold_tick_lag_seconds_count"][()]


def test_constant_labels_stand_at_every_series(feed):
    """The rank, say."""
    text = exposition(feed, {"rank": "3"}).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all('rank="3"' in line for line in lines)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"rank-id": "0"}, "'rank-id': expected letters, digits and _"),
        ({"": "0"}, "'': expected letters"),
        ({"__rank": "0"}, "no __ in front"),
        ({"state": "0"}, "'state': expected another name"),
        ({"le": "0"}, "'le': expected another name"),
        ({"rank": 0}, "'rank': expected text, found 0"),
    ],
)
def test_labels_that_no_scrape_could_be_read_with_are_refused_at_once(feed, labels, said):
    """Not scrape by scrape."""
    with pytest.raises(ValueError, match=re.escape(said)):
        serve(feed, labels=labels)
    with pytest.raises(ValueError, match=re.escape(said)):
        exposition(feed, labels)


def test_the_text_of_a_label_may_be_any(feed):
    """It cannot begin a line of its own."""
    lines = exposition(feed, {"rank": 'a"} 1\nstagehold_ticks_total 7\\'}).decode().splitlines()
    assert ['stagehold_ticks_total{rank="a\\"} 1\\nstagehold_ticks_total 7\\\\"} 5.0'] == [
        line for line in lines if line.startswith("stagehold_ticks_total")
    ]


class Scraped(Storm):
    """A storm that publishes a snapshot after every pass."""

    def __init__(self, seed: int, requests: int) -> None:
        super().__init__(seed, requests)
        self.feed = Feed(self.world.engine, pace_seconds=0)

    def _pass(self) -> None:
        with self.feed.timing():  # the tick, and the rest of the pass
            super()._pass()


def test_scrapes_in_a_storm_are_whole_and_balance():
    """From another thread, again and again: all series each time, and no token between two books."""
    storm, scrapes, done = Scraped(5, 120), [], threading.Event()

    def scrape() -> None:
        while not done.wait(0.005):
            scrapes.append(exposition(storm.feed))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    storm.run()
    done.set()
    scraper.join()
    storm.feed.publish()
    scrapes.append(exposition(storm.feed))
    storm.world.close()
    assert len(scrapes) > 8
    first = {name: set(values) for name, values in scraped(scrapes[0]).items()}
    seen = [scraped(text) for text in [*scrapes[:: 1 + len(scrapes) // 20], scrapes[-1]]]
    for found in seen:
        assert first == {name: set(values) for name, values in found.items()}
        lost = sum(found["stagehold_lost_tokens_total"].values())
        known = found["stagehold_spliced_tokens_total"][()] + lost + found["stagehold_open_claim_tokens"][()]
        assert found["stagehold_queried_tokens_total"][()] == known
        assert 0 == found["stagehold_token_gap_tokens"][()] == found["stagehold_violations_total"][()]
    for measure in MEASURES:
        if measure.kind is Kind.COUNTER:
            for labels in seen[0][exposed(measure)]:
                values = [found[exposed(measure)][labels] for found in seen]
                assert sorted(values) == values, (measure.name, labels)
    assert seen[-1]["stagehold_spliced_tokens_total"][()] > 0
    assert len({found["stagehold_queried_tokens_total"][()] for found in seen}) > 4


# Pages


def test_the_page_is_what_the_measures_say():
    """Else `stagehold metrics reference` writes it anew."""
    done = CliRunner().invoke(app, ["metrics", "reference", str(DOCS / "metrics.md"), "--check"])
    assert 0 == done.exit_code, done.output


def test_a_stale_page_is_found(tmp_path):
    """With the command that mends it."""
    page = tmp_path / "metrics.md"
    assert 0 == CliRunner().invoke(app, ["metrics", "reference", str(page)]).exit_code
    page.write_text(page.read_text().replace("a commit admits", "a commit is made", 1))
    done = CliRunner().invoke(app, ["metrics", "reference", str(page), "--check"])
    assert 1 == done.exit_code
    assert "run `stagehold metrics reference`" in done.output


# Alerts

SUFFIXES = ("_bucket", "_sum", "_count")


def unknown(expression: str, scrape: dict[str, dict[tuple[str, ...], float]]) -> list[str]:
    """Names, labels and label values of an expression that no scrape has."""
    wrong = []
    labels = {exposed(measure): measure.labels for measure in MEASURES}
    labels |= {name + end: labels[name] for name in list(labels) for end in SUFFIXES}
    for name, selector in re.findall(r"(stagehold_\w+)(?:\{([^}]*)\})?", expression):
        if name not in scrape:
            wrong.append(name)
            continue
        for label, sign, value in re.findall(r'(\w+)(=~?)"([^"]*)"', selector):
            place = labels[name].index(label) if label in labels[name] else None
            there = {own[place] for own in scrape[name]} if place is not None else set()
            wrong += [f"{name}{{{label}={one}}}" for one in (value.split("|") if "~" in sign else [value])
                      if one not in there]  # fmt: skip
    return wrong


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_rule_is_about_series_that_exist(feed, rule):
    """Names, labels and their values; and it says what to do."""
    assert PREFIX in rule["expr"]
    assert [] == unknown(rule["expr"], scraped(exposition(feed)))
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["action"].endswith(".")


@pytest.mark.parametrize(
    "planted",
    [
        "stagehold_violation_total > 0",
        'stagehold_events_total{counter="tick_lost"} > 0',
        'stagehold_ticks_total{x="y"}',
    ],
)
def test_a_rule_on_what_is_not_there_is_caught(feed, planted):
    """A metric, a value, a label."""
    assert 1 == len(unknown(planted, scraped(exposition(feed))))


def test_every_rule_names_a_command_or_option_that_exists():
    """What an action tells people to type or to set."""
    from stagehold.operate.settings import names

    options = {name.rpartition(".")[2] for name in names()}
    actions = " ".join(rule["annotations"]["action"] for rule in RULES)
    for verb in re.findall(r"stagehold ((?:audit )?[a-z]+)", actions):
        assert 0 == CliRunner().invoke(app, [*verb.split(), "--help"]).exit_code, verb
    for word in re.findall(r"\b(?!write_(?:put|start|timeout))[a-z]+_[a-z_]+\b", actions):
        assert word in options, word
