"""No request grows past the largest admissible one, by extension or by retraction: it could never run again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagehold import Misuse
from stagehold.testing.hand import Hand


def test_an_extension_past_the_largest_request_is_refused_and_changes_nothing(hand: Callable[..., Hand]) -> None:
    """The message has the arithmetic; the request goes on with what it has."""
    one = hand(largest_request_tokens=64)
    handle = one.arrive("r", one.prompt(3), new=4)
    one.admit(handle)
    one.engine.extend(handle, 49)
    with pytest.raises(Misuse, match=r"49 \+ 16 tokens are more than largest_request_tokens=64"):
        one.engine.extend(handle, 16)
    assert one.engine.extend(handle, 15).slots == ()
    one.engine.abort(handle)


def test_a_request_whose_tokens_are_all_known_is_finished_and_not_retracted(hand: Callable[..., Hand]) -> None:
    """An attempt with nothing left to compute would ask for a token more than the largest request has."""
    one = hand(largest_request_tokens=64, device_pages=5, pin_fraction=0.0)
    handle = one.arrive("r", one.prompt(3, tail=12), new=4)
    one.admit(handle)
    one.engine.extend(handle, 60)
    one.engine.extend(handle, 4, [1, 2, 3, 4])
    with pytest.raises(Misuse, match="every token that was asked for is known; finish it"):
        one.engine.retract(handle)
    one.engine.finish(handle)


def test_a_retracted_attempt_asks_for_what_is_left(hand: Callable[..., Hand]) -> None:
    """Prompt and known answer are the new prompt; it fits where the first attempt did."""
    one = hand(largest_request_tokens=64, device_pages=5, pin_fraction=0.0)
    handle = one.arrive("r", one.prompt(3, tail=12), new=4)
    one.admit(handle)
    one.engine.extend(handle, 60)
    one.engine.extend(handle, 3, [1, 2, 3])
    again = one.engine.retract(handle)
    one.tick(20)
    assert one.admit(again).admitted
    one.engine.abort(again)
