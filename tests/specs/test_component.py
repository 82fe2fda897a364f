"""What an engine may be told of a component, and what is refused at start, with the arithmetic."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stagehold import ComponentConfig, ComponentKind, Engine, EngineConfig, HostMode
from stagehold.cache.errors import CacheRefused
from stagehold.specs.outcomes import WindowWrites
from stagehold.testing.hand import small_config

WINDOW = ComponentKind.SLIDING_WINDOW
CHECKPOINT = ComponentKind.CHECKPOINT


def window(**settings) -> ComponentConfig:
    """A window of 3 pages of 16 tokens with room for everything."""
    usual = {"name": "swa", "kind": WINDOW, "device_pages": 100, "staging_pages": 20, "window_tokens": 48}
    return ComponentConfig(**{**usual, **settings})


def checkpoint(**settings) -> ComponentConfig:
    return ComponentConfig(**{"name": "state", "kind": CHECKPOINT, "device_pages": 8, "staging_pages": 8, **settings})


def config(*components: ComponentConfig, **settings) -> EngineConfig:
    """Chunks of 4 pages."""
    return small_config(components=components, **{"chunk_tokens": 64, **settings})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"window_tokens": None}, r"'swa': kind=sliding_window with window_tokens=None; a sliding window needs one"),
        ({"kind": CHECKPOINT}, r"'swa': kind=checkpoint with window_tokens=48; .*a checkpoint has none"),
        ({"kind": CHECKPOINT, "window_tokens": None, "ring": True}, r"ring and writes are options of a sliding window"),
        (
            {"kind": CHECKPOINT, "window_tokens": None, "writes": WindowWrites.LAST},
            r"ring and writes are options of a sliding window",
        ),
        ({"parts": 2}, r"'swa': parts=2 and page_part_bytes=0; set both to attach tensors, or neither"),
        ({"page_part_bytes": 64}, r"'swa': parts=0 and page_part_bytes=64"),
        ({"window_tokens": 0}, r"window_tokens"),
        ({"device_pages": 0}, r"device_pages"),
        ({"staging_pages": -1}, r"staging_pages"),
        ({"kind": "linear"}, r"kind"),
        ({"name": "SWA"}, r"name"),
        ({"name": ""}, r"name"),
        ({"name": "x" * 33}, r"name"),
        ({"windows": 1}, r"windows"),
    ],
)
def test_what_a_component_cannot_mean_is_refused(settings, sentence):
    """By its name, and with what was given."""
    with pytest.raises(ValidationError, match=sentence):
        window(**settings)


@pytest.mark.parametrize(
    ("page", "tokens", "pages"),
    [(1, 1, 1), (1, 48, 48), (16, 1, 1), (16, 15, 1), (16, 16, 1), (16, 17, 2), (16, 48, 3), (64, 63, 1), (64, 65, 2)],
)
def test_a_window_is_counted_in_whole_pages(page, tokens, pages):
    """Rounded up: a boundary lies on a page, and the window before it ends there."""
    assert pages == window(window_tokens=tokens).window_pages(page)
    assert 0 == checkpoint().window_pages(page)


@pytest.mark.parametrize(
    ("chunk", "ring", "least"),
    [
        (4, False, 2 * 3 + 4 + 2),  # the window of a hit, that of what it published, a chunk, what begins in a page
        (4, True, 2 * 3 + 4 + 1),  # no slot need stay free
        (1, False, 2 * 3 + 3 + 2),  # what it decodes needs a window, too
        (32, False, 2 * 3 + 32 + 2),
    ],
)
def test_a_device_pool_holds_what_one_request_can_need(chunk, ring, least):
    """One slot less is refused, with the sum that says why."""
    assert config(window(device_pages=least, ring=ring), chunk_tokens=16 * chunk).components
    what = (
        rf"device_pages={least - 1}, but one request can need {least} \(2 x 3 \+ max\({chunk}, 3\) \+ {2 - ring} pages"
    )
    with pytest.raises(ValidationError, match=f"component 'swa': {what}"):
        config(window(device_pages=least - 1, ring=ring), chunk_tokens=16 * chunk)


def test_without_chunk_tokens_a_chunk_is_the_largest_request():
    """512 tokens are 32 pages; the sentence says what to set."""
    assert 32 == config(chunk_tokens=None).chunk_pages
    with pytest.raises(ValidationError, match=r"can need 40 .*set chunk_tokens to the largest piece of a prompt"):
        config(window(device_pages=39), chunk_tokens=None)


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (16, 1), (17, 2), (64, 4)])
def test_a_chunk_is_counted_in_whole_pages(tokens, pages):
    """Rounded up."""
    assert pages == config(chunk_tokens=tokens).chunk_pages


def test_a_pool_of_checkpoints_holds_three():
    """One to compute in, one to go on from, and one free."""
    assert config(checkpoint(device_pages=3)).components
    with pytest.raises(ValidationError, match=r"'state': device_pages=2, but one request can need 3 \(one to compute"):
        config(checkpoint(device_pages=2))


@pytest.mark.parametrize(("component", "least"), [(window, 6), (checkpoint, 2)])
def test_staging_holds_two_holds(component, least):
    """Two full windows, or two checkpoints; with the tier off nothing is staged."""
    assert config(component(staging_pages=least)).components
    with pytest.raises(
        ValidationError, match=rf"staging_pages={least - 1}, but two holds need {least} \(2 x {least // 2}\)"
    ):
        config(component(staging_pages=least - 1))
    assert config(component(staging_pages=0), staging_pages=0).components


def test_a_name_stands_for_one_component():
    """Names are parts of object names."""
    with pytest.raises(ValidationError, match=r"each name stands for one, got \['swa', 'state', 'swa'\]"):
        config(window(), checkpoint(), window())


def test_full_is_the_name_of_what_every_engine_has():
    """Refused when the engine is built."""
    with pytest.raises(CacheRefused, match=r"'full' is the KV of full attention, which every engine has"):
        Engine(config(checkpoint(name="full")))


@pytest.mark.parametrize("whole", [{"parts": 2, "page_part_bytes": 64}, {}])
def test_tensors_are_attached_to_every_component_or_to_none(whole):
    """A page that has bytes in one component and none in another could not be restored."""
    other = {} if whole else {"parts": 1, "page_part_bytes": 64}
    assert config(window(**whole), **whole).components
    with pytest.raises(
        ValidationError, match=r"component 'state': tensors are attached to every component, or to none"
    ):
        config(window(**whole), checkpoint(**other), **whole)


@pytest.mark.parametrize(
    ("mode", "tokens", "pages"),
    [(HostMode.BUFFER_ONLY, 16, 3), (HostMode.BUFFER_ONLY, 80, 5), (HostMode.CACHE, 16, 1), (HostMode.CACHE, 80, 5)],
)
def test_a_fetch_into_a_buffer_is_worth_a_full_window(mode, tokens, pages):
    """A shorter one could bring no window; what is in the host tier already costs no fetch."""
    found = config(window(), checkpoint(), prefetch_threshold_tokens=tokens, host_memory_mode=mode)
    assert pages == found.threshold_pages


def test_a_store_is_opened_for_the_largest_page():
    """Of any component."""
    parts = {"parts": 2, "page_part_bytes": 64}
    assert 300 == config(window(**parts), checkpoint(parts=3, page_part_bytes=100), **parts).largest_page_bytes
    assert 128 == config(window(parts=1, page_part_bytes=8), **parts).largest_page_bytes
    assert 0 == config(window()).largest_page_bytes


def test_a_component_is_frozen():
    """Nobody turns it while an engine runs."""
    with pytest.raises(ValidationError):
        window().device_pages = 1
