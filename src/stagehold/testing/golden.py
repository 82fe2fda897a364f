"""Golden conversations: text files of commands, each with the audit lines that a real engine gave for it.

Owns the format and the commands. A file is read from top to bottom:

    # A comment. Comments and blank lines stay as they are written.
    > arrive one a:4 b:2
          -  one: born in queued
    > tick
          3  one: queued, issue [launch: LOOKUP] → lookup
    > visit one
          =  skipped: waiting_lookup

A line that begins with `>` is a command; the indented lines below it are what came of it, and `play` writes them anew.
The first column says when: a number is the tick in which the record was made, `-` stands for what happened between two
ticks, `=` for what the call gave back. Ticks in which nothing was recorded leave no line. Requests go by their ids,
holds and writes by the order of their births, `store` is the breaker and `attachment` the link to the store.

A text is given by its pages: `a:4 b:2` is four pages of text `a`, then two of text `b`, and one token more, so that
`a:4 b:2` and `a:6` have their first four pages in common. `2..5` are the pages from 2 up to 5, counted from 0.

`HELP` says what each command does. Without `> engine` the engine is that of `stagehold.testing.hand.small_config()`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.data import Admission, Handle, Plan, Skip
from stagehold.lifecycle.errors import Misuse, PartialDelivery
from stagehold.lifecycle.ranks.in_process import InProcess
from stagehold.machines import MACHINES, Birth, Sink, audit_words
from stagehold.machines.records import RECORD, HandleKey
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.component import ComponentConfig
from stagehold.specs.outcomes import ComponentKind
from stagehold.testing.hand import FAMILY_TOKENS, Hand, Tokens, small_config

COMMAND = ">"
OUTPUT = "    "
BETWEEN, ANSWER = "-", "="

HELP = {
    "engine": "NAME=VALUE ...: the settings of the engine, `window=N` pages, `ranks=2`; only as the first command",
    "arrive": "RID TEXT: a request for this text",
    "tick": "[COUNT]: so many passes, 1 if left out",
    "visit": "RID: select, and commit what was selected",
    "select": "RID: open a visit",
    "commit": "RID: end the open visit by a commit",
    "release": "RID: end the open visit without one",
    "compute": "RID: compute and publish the rest of the prompt",
    "finish": "RID: the request ends well",
    "retract": "RID: the slots of a running request are taken back",
    "abort": "RID: the caller ends the request",
    "put": "TEXT [FIRST..END]: another server stores these pages, all if left out",
    "lose": "TEXT FIRST..END: the store loses these pages",
    "grow": "TEXT [FIRST..END]: a sibling publishes all whole pages of this text, and its window for these pages",
    "fade": "TEXT FIRST..END: the window slots of these pages are evicted, the pages stay",
    "shrink": "TEXT KEPT: what lies behind the first KEPT pages is evicted",
    "fail": "COUNT: the next operations of the store fail",
    "limit": "PAGES: so many pages pass between store and staging in a tick",
    "late": "COUNT: the store of the second rank answers so many ticks later",
    "stall": "the store completes nothing",
    "unstall": "the store goes on",
    "detach": "let go of the store",
    "attach": "use the same store again",
    "flush": "empty the tree",
}
"""What each command takes and does."""


class GoldenError(ValueError):
    """A line that is no command of these conversations; the message has its number and what was expected."""


def play(text: str, sink: Sink | None = None) -> str:
    """The same conversation with the output that its commands give now, on an engine of its own.

    `sink` receives the engine's audit blocks. `GoldenError` names the first line that cannot be understood.
    """
    kept: list[str] = []
    talk: Conversation | None = None
    try:
        for number, line in enumerate(text.splitlines(), start=1):
            if line.startswith(OUTPUT):
                continue
            kept.append(line)
            if line.startswith(COMMAND):
                words = shlex.split(line[len(COMMAND) :])
                try:
                    if talk is None:
                        talk = Conversation(*(words[1:] if words[:1] == ["engine"] else ()), sink=sink)
                    kept += [f"{OUTPUT}{said}".rstrip() for said in talk.say(words)]
                except ValueError as error:  # settings that cannot work, too
                    raise GoldenError(f"line {number}: {error}") from error
            elif line and not line.startswith("#"):
                raise GoldenError(f"line {number}: expected a comment, a command or its output, found {line!r}")
    finally:
        if talk is not None:
            talk.close()
    return "\n".join(kept) + "\n"


class Conversation:
    """One engine over a simulated store that answers in the next tick; `say` runs one command."""

    def __init__(self, *settings: str, sink: Sink | None = None) -> None:
        self.hands = _hands(_settings(settings), sink)  # one for each rank, and all do the same
        self.hand = self.hands[0]
        self.handles: dict[str, Handle] = {}
        self.plans: dict[str, Plan] = {}
        self._names: dict[int, str] = {}
        self._born: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._records, self._births = 0, 0  # of the open block, said already
        self._begun = False
        while self.hand.engine.attachment is AttachmentState.ATTACHING:
            self._pass()
        self._hush()

    def close(self) -> None:
        """End the engine of every rank."""
        for hand in self.hands:
            hand.engine.close()

    def say(self, words: list[str]) -> list[str]:
        """What one command leads to: lines of the audit, then what the call gave back."""
        name, *arguments = words or [""]
        if name not in HELP:
            raise GoldenError(f"expected one of {', '.join(HELP)}, found {name!r}")
        begun, self._begun = self._begun, True
        if name == "engine" and not begun:
            return []
        deed: Callable[..., list[str] | None] = getattr(self, f"_{name}")
        try:
            said = (deed(*arguments) or []) if name in ("tick", "late") else self._on_all(deed, arguments)
        except (TypeError, KeyError, ValueError) as error:
            raise GoldenError(f"{name} {HELP[name]}; found {' '.join(arguments) or 'nothing'!r}") from error
        except (Misuse, PartialDelivery) as error:
            said = [_line(ANSWER, f"{type(error).__name__}: {error}")]
        return [*self._news(BETWEEN), *said] if name != "tick" else said

    def _on_all(self, deed: Callable[..., list[str] | None], arguments: list[str]) -> list[str]:
        """What the first rank is told; every rank must be told the same."""
        told = []
        for hand in self.hands:
            self.hand = hand
            told.append(deed(*arguments) or [])
        self.hand = self.hands[0]
        assert all(said == told[0] for said in told), f"the ranks were told different things: {told}"
        return told[0]

    # What is said of the audit

    def _hush(self) -> None:
        """Pass over what led up to now, and give the standing machines their names."""
        for machine in ("breaker", "link"):
            m = getattr(self.hand.core, machine)
            self._names[m.number] = "store" if machine == "breaker" else "attachment"
        list(self._news(BETWEEN))

    def _news(self, when: str) -> Iterator[str]:
        """Births and records of the open block that have not been said."""
        journal = self.hand.core.journal
        records = b"".join(journal.records)
        yield from self._told(when, tuple(journal.births)[self._births :], records[self._records :])
        self._births, self._records = len(journal.births), len(records)

    def _told(self, when: str, births: tuple[Birth, ...], records: bytes) -> Iterator[str]:
        for birth in births:
            yield _line(when, self._naming(birth))
        for record in np.frombuffer(records, RECORD).tolist():
            said = audit_words.describe(record, MACHINES)
            said = re.sub(r"\bhold (\d+)", lambda found: self._names[int(found[1])], said)
            yield _line(when, f"{self._names[record[0]]}: {said}")

    def _naming(self, birth: Birth) -> str:
        """The line of a birth; the instance has its name from now on."""
        machine = MACHINES[birth.machine].name
        if isinstance(birth.key, HandleKey):
            named = machine if machine != "request" else birth.key.rid
            name = named if birth.key.attempt == 0 or machine != "request" else f"{named} #{birth.key.attempt}"
            key = ""
        else:
            self._born[machine] = self._born.get(machine, 0) + 1
            name = f"{machine} {self._born[machine]}"
            key = f", pages {birth.key.first}..{birth.key.last}"
        self._names[birth.number] = name
        state = type(MACHINES[birth.machine].initial)(birth.state).name.lower()
        return f"{name}{key}: born in {state}"

    # Commands: time

    def _engine(self, *_settings: str) -> None:
        raise ValueError("the engine runs already")

    def _tick(self, count: str = "1") -> list[str]:
        said: list[str] = []
        for _ in range(int(count)):
            self._pass()
            block = self.hand.engine.last_block()
            assert block is not None, "a tick closes a block"
            when = str(block.tick)
            said += self._told(when, block.births[self._births :], block.records[self._records :])
            self._births = self._records = 0
        return said

    def _pass(self) -> None:
        """One pass of all ranks: what each has found out is agreed on by its least."""
        facts = [hand.engine.poll() for hand in self.hands]
        for hand in self.hands:
            hand.engine.proceed(np.minimum.reduce(facts))
        assert len({hand.engine.digest() for hand in self.hands}) == 1, "the ranks recorded different things"

    def _late(self, count: str) -> list[str]:
        ticks = 1 + int(count)
        self.hands[1].store._delays = Delays(exists=(ticks, ticks), get=(ticks, ticks), put=(ticks, ticks))  # noqa: SLF001
        return []

    # Commands: requests

    def _arrive(self, rid: str, *text: str) -> None:
        self.handles[rid] = self.hand.arrive(rid, self._text(text))

    def _visit(self, rid: str) -> list[str]:
        return _answer(self.hand.visit(self.handles[rid]))

    def _select(self, rid: str) -> list[str]:
        found = self.hand.engine.select(self.handles[rid], 100_000)
        if isinstance(found, Plan):
            self.plans[rid] = found
        return _answer(found)

    def _commit(self, rid: str) -> list[str]:
        return _answer(self.hand.engine.commit(self.plans.pop(rid)))

    def _release(self, rid: str) -> None:
        self.hand.engine.release(self.plans.pop(rid))

    def _compute(self, rid: str) -> None:
        self.hand.compute(self.handles[rid])

    def _finish(self, rid: str) -> None:
        self.hand.engine.finish(self.handles[rid])

    def _retract(self, rid: str) -> None:
        self.handles[rid] = self.hand.engine.retract(self.handles[rid])

    def _abort(self, rid: str) -> None:
        self.hand.engine.abort(self.handles[rid])

    # Commands: everybody else

    def _put(self, *words: str) -> None:
        text, first, end = self._pages(words)
        self.hand.put_all(text, first, end)

    def _lose(self, *words: str) -> None:
        text, first, end = self._pages(words)
        for name in self.hand.names(text, first, end):
            self.hand.store.drop(name)

    def _grow(self, *words: str) -> None:
        text, first, end = self._pages(words)
        bring = {one.name: end - first for one in self.hand.config.components}
        self.hand.grow(text, len(text) // self.hand.config.page_size, **bring)

    def _fade(self, *words: str) -> None:
        text, first, end = self._pages(words)
        for one in self.hand.config.components:
            self.hand.tombstone(text, first, end, one.name)

    def _shrink(self, *words: str) -> list[str]:
        gone = self.hand.shrink(self._text(words[:-1]), int(words[-1]))
        return [_line(ANSWER, f"{gone} pages evicted")]

    def _fail(self, count: str) -> None:
        self.hand.store.fail_next(int(count))

    def _limit(self, pages: str) -> None:
        self.hand.store.limit(int(pages))

    def _stall(self) -> None:
        self.hand.store.stall()

    def _unstall(self) -> None:
        self.hand.store.release()

    def _detach(self) -> None:
        self.hand.engine.detach()

    def _attach(self) -> None:
        self.hand.engine.attach(self.hand.store)

    def _flush(self) -> None:
        self.hand.engine.flush()

    # Texts

    def _text(self, pieces: tuple[str, ...]) -> Tokens:
        """The tokens of `a:4 b:2`: a text has the same token at the same place wherever it is used."""
        size, parts, at = self.hand.config.page_size, [], 0
        for piece in pieces:
            name, pages = piece.split(":")
            family = self._texts.setdefault(name, len(self._texts) + 1)
            until = at + int(pages) * size
            parts.append(np.arange(at, until, dtype=np.uint32) + np.uint32(family * FAMILY_TOKENS))
            at = until
        return np.concatenate([*parts, np.array([at], np.uint32)])

    def _pages(self, words: tuple[str, ...]) -> tuple[Tokens, int, int]:
        spans = [word for word in words if ".." in word]
        text = self._text(tuple(word for word in words if ".." not in word))
        first, end = spans[0].split("..") if spans else (0, len(text) // self.hand.config.page_size)
        return text, int(first), int(end)


def _line(when: str, said: str) -> str:
    return f"{when:>5}  {said}"


def _hands(settings: dict[str, Any], sink: Sink | None) -> list[Hand]:
    """One rank, or two of one group; the first one's blocks are told."""
    ranks = settings.pop("ranks", 1)
    group = InProcess(ranks)
    options = [{"sink": sink if rank == 0 else None, "group": group.member(rank)} for rank in range(ranks)]
    return [Hand(engine_options=one, attach=False, **settings) for one in options]


def _settings(words: tuple[str, ...]) -> dict[str, Any]:
    """What a `Hand` is built with; a window comes with pools that are large enough for these stories."""
    found = dict(map(_setting, words))
    window = found.pop("window", None)
    if window is not None:
        page = found.get("page_size", small_config().page_size)
        one = ComponentConfig(
            name="window",
            kind=ComponentKind.SLIDING_WINDOW,
            window_tokens=window * page,
            device_pages=64,
            staging_pages=16,
        )
        found |= {"components": (one,), "chunk_tokens": 16 * page}
    return found


def _setting(word: str) -> tuple[str, Any]:
    name, _, value = word.partition("=")
    try:
        return name, float(value) if "." in value else int(value)
    except ValueError:
        return name, value


def _answer(found: Plan | Skip | Admission) -> list[str]:
    """What a call gave back, in words."""
    if isinstance(found, Skip):
        said = f"skipped: {found.reason}"
    elif isinstance(found, Plan):
        said = f"planned: {found.live_pages} pages live, {found.promised_pages} promised"
    elif found.admitted:
        hits = f"{found.device_hit_tokens} tokens from the device, {found.store_hit_tokens} from the store"
        said = f"admitted: {hits}, {found.extend_tokens} to compute"
    else:
        said = f"refused: {found.outcome}"
    return [_line(ANSWER, said)]
