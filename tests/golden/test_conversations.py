"""Every conversation in this folder gives today what stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagehold.testing.golden import play

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=[story.stem for story in STORIES])
def test_a_conversation_goes_as_it_is_written(story: Path, update: bool) -> None:
    """Line for line; `--golden-update` writes what it gives now, to be read as a difference."""
    written = story.read_text(encoding="utf-8")
    played = play(written)
    if update:
        story.write_text(played, encoding="utf-8")
        return

    assert written == played


def test_every_story_is_told() -> None:
    """A folder that was moved or emptied is no success."""
    assert 9 <= len(STORIES)
    assert all(story.read_text(encoding="utf-8").startswith("# ") for story in STORIES)
