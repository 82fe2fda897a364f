"""The conformance kit passes good stores and catches bad ones."""

import pytest

from stagehold.cache.stores import open as opening
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.testing.conformance import Status, check_store
from stagehold.testing.store_checks import CHECKS


@pytest.mark.parametrize(
    "options", ["", "&capacity=1MiB", "&capacity=4MiB&workers=1", "&form=packed", "&form=packed&capacity=2MiB"]
)
def test_the_file_store_conforms(tmp_path, options):
    """All checks pass on real files, those about capacity where there is one."""
    result = check_store(f"file://{tmp_path}?floor=0{options}", page_bytes=8192)
    assert result.as_dict()["failed"] == {}
    assert len(result.named(Status.PASSED)) >= len(CHECKS) - 1


@pytest.mark.parametrize("url", ["sim:", "sim:?capacity=2MiB", "sim:?pages_per_tick=3&seed=9"])
def test_the_simulated_store_conforms(url):
    """All checks pass but those about pages that outlive a handle."""
    result = check_store(url, page_bytes=4096)
    assert result.as_dict()["failed"] == {}
    assert len(result.named(Status.PASSED)) >= len(CHECKS) - 3


class Careless(SimulatedStore):
    """Claims every page that it looked at."""

    persistent = True

    def _read(self, name, out):
        super()._read(name, out)
        return Verdict.HIT


class Forgetful(SimulatedStore):
    """Acknowledges and keeps nothing."""

    def _write(self, name, body):
        return Verdict.STORED


class Unordered(SimulatedStore):
    """Lists its tickets the wrong way round."""

    def poll(self, tick):
        return super().poll(tick)[::-1]


class Repeating(SimulatedStore):
    """Ends everything twice."""

    def poll(self, tick):
        return [report for report in super().poll(tick) for _ in range(2)]


class Swapping(SimulatedStore):
    """Gives every second page for the first, verified and all; its pages outlive a handle."""

    persistent = True
    shelf = Medium()

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options, medium=self.shelf)

    def get_into(self, ticket, keys, buffers, tick):
        super().get_into(ticket, [keys[index // 2 * 2] for index in range(len(keys))], buffers, tick)


class Endless(SimulatedStore):
    """Reads on for nobody."""

    def cut(self, ticket, tick):
        pass


class Plain(SimulatedStore):
    """Does not claim that it can end anything early."""

    cut = None


class Limitless(SimulatedStore):
    """Takes the capacity for a suggestion."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.medium.capacity_bytes = None


@pytest.mark.parametrize(
    ("kind", "caught"),
    [
        (Careless, "an absent page is a plain miss"),
        (Careless, "a damaged page is a miss with its reason"),
        (Careless, "a page of another length is no hit"),
        (Forgetful, "pages come back as they were put"),
        (Unordered, "each ticket ends once and in order"),
        (Repeating, "each ticket ends once and in order"),
        (Endless, "an operation that is cut ends between two pages"),
        (Limitless, "capacity limits"),
        (Forgetful, "an engine serves the right bytes from it"),
        (Swapping, "an engine serves the right bytes from it"),
    ],
)
def test_a_bad_store_is_caught(monkeypatch, kind, caught):
    """Each defect fails the check that is about it."""
    monkeypatch.setitem(opening._OPENERS, "sim", lambda _: kind(delays=Delays((1, 1), (1, 1), (1, 1))))
    assert caught in check_store("sim:?capacity=256KiB", page_bytes=4096).named(Status.FAILED)


def test_a_store_need_not_cut(monkeypatch):
    """The check is left out, and says why."""
    monkeypatch.setitem(opening._OPENERS, "sim", lambda _: Plain(delays=Delays((1, 1), (1, 1), (1, 1))))
    found = check_store("sim:", page_bytes=4096)
    assert found.ok
    assert "an operation that is cut ends between two pages" in found.named(Status.SKIPPED)


def test_a_reason_names_the_verdicts(monkeypatch):
    """In words, as the page on stores has them."""
    monkeypatch.setitem(opening._OPENERS, "sim", lambda _: Forgetful(delays=Delays((1, 1), (1, 1), (1, 1))))
    assert check_store("sim:", page_bytes=4096, checks=CHECKS[:1]).as_dict()["failed"] == {
        "pages come back as they were put": "batch of 1: MISS",
    }


def test_a_store_that_never_answers_is_caught(monkeypatch):
    """An operation without an end fails the check after its patience."""
    monkeypatch.setattr("stagehold.testing.store_checks.PATIENCE_SECONDS", 0.01)
    result = check_store("sim:?stall=1", checks=CHECKS[:1])
    assert result.as_dict()["failed"] == {
        "pages come back as they were put": "1 operations never ended",
    }
    assert not result.ok
