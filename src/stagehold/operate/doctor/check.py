"""What a check says: whether all is well, what was found, and what to do where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `fix` says what to do; of a check that is `ok` it is advice."""

    name: str
    ok: bool
    detail: str
    fix: str = ""

    def line(self) -> str:
        """As people read it."""
        said = f"{'ok  ' if self.ok else 'FAIL'} {self.name}: {self.detail}"
        return f"{said}; {'note' if self.ok else 'do this'}: {self.fix}" if self.fix else said


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.4g} {UNITS[unit]}"


def guarded(name: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """The checks of one look; a look that fails itself is a failed check, not the end of all others."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are still worth having
        yield Check(
            name, ok=False, detail=f"{type(error).__name__}: {error}", fix="this check could not be made; report it"
        )
