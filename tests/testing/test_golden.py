"""The reader of golden conversations: what it keeps, what it writes anew, and what it refuses."""

from __future__ import annotations

import pytest

from stagehold.testing.golden import HELP, GoldenError, play

SHORT = """\
# One request.
> put a:4
> arrive one a:4

> tick 3
"""


def test_comments_commands_and_blank_lines_stay() -> None:
    """Only the output is written."""
    played = play(SHORT)

    assert SHORT.splitlines() == [line for line in played.splitlines() if not line.startswith("    ")]
    assert "        3  one: queued, issue [launch: LOOKUP] → lookup\n" in played
    assert "hold 1, pages 0..4: born in parked" in played


def test_what_was_played_plays_the_same() -> None:
    """Old output is passed over."""
    assert play(SHORT) == play(play(SHORT))


def test_another_engine_gives_another_output() -> None:
    """Settings are those of the engine and its limits."""
    engine = "> engine prefetch_threshold_tokens=256\n"

    assert "[launch: TOO_SHORT]" in play(engine + SHORT)


def test_what_the_engine_refuses_is_output() -> None:
    """A call at the wrong time is part of the conversation."""
    said = play("> arrive one a:4\n> finish one\n")

    assert "=  Misuse: finish(" in said


def test_the_next_attempt_of_a_request_has_its_number() -> None:
    """A retraction starts a new handle under the same id."""
    said = play(
        "> arrive one a:4\n> tick\n> visit one\n> visit one\n> tick 2\n> visit one\n> compute one\n> retract one\n"
    )

    assert "one: committed, retract → retracted" in said
    assert "one #1: born in queued" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sing", "line 2: expected a comment, a command or its output, found 'sing'"),
        ("> sing", "line 2: expected one of engine, arrive, tick"),
        ("> visit nobody", f"line 2: visit {HELP['visit']}; found 'nobody'"),
        ("> tick often", f"line 2: tick {HELP['tick']}; found 'often'"),
        ("> put a", f"line 2: put {HELP['put']}; found 'a'"),
        ("> abort", f"line 2: abort {HELP['abort']}; found 'nothing'"),
        ("> engine page_size=16", f"line 2: engine {HELP['engine']}"),
    ],
)
def test_a_line_that_says_nothing_is_named(line: str, says: str) -> None:
    """Its number, and what was expected."""
    with pytest.raises(GoldenError) as caught:
        play(f"> put a:4\n{line}\n")

    assert says in str(caught.value)


def test_settings_that_cannot_work_are_named() -> None:
    """With the line on which they stand."""
    with pytest.raises(GoldenError, match=r"(?s)line 1: .*device_pages=2"):
        play("> engine device_pages=2\n")


def test_every_command_is_explained() -> None:
    """Each has a line of help, and an unknown one lists them all."""
    with pytest.raises(GoldenError) as caught:
        play("> ?\n")

    assert all(name in str(caught.value) for name in HELP)
