"""The naive reference model of a tree that evicts by S3-FIFO: the queues are a number, a flag and a count per run.

Owns the definition of who goes first there. Every choice looks at all runs; the ghost is a list. Never imported by
what it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stagehold.cache.keys import block_pages
from stagehold.specs.outcomes import Eviction
from stagehold.testing.tree_model import Key, TreeModel
from stagehold.testing.tree_shape import Shape


@dataclass(slots=True)
class Standing:
    """Where a run stands: its place in its queue, whether that is main, and how often it may stay there."""

    place: int = 0
    main: bool = False
    lives: int = 0


@dataclass(slots=True)
class QueuesModel(TreeModel):
    """`room` pages in the pool; the index has a key for every `block` pages and for the first page of a run."""

    room: int = 0
    block: int = 1
    places: int = 0
    standings: dict[Key, Standing] = field(default_factory=dict)
    ghost: list[Key] = field(default_factory=list)
    seen_again: int = 0
    spent: int = 0

    def place(self) -> int:
        """A place behind all others."""
        self.places += 1
        return self.places

    def above(self, key: Key) -> list[Key]:
        """Ends of the runs above the one that ends with `key`, from the root down."""
        return [page for page in self.path(key)[:-1] if page in self.ends]

    def named(self, key: Key, first: Key) -> bool:
        """Whether the index has a key for this page of a run that begins with `first`."""
        return len(key.text) % self.block == 0 or key == first

    # -- what happens ----------------------------------------------------------------------------------------

    def cut(self, key: Key) -> None:
        """The upper part is in the queue of the lower one."""
        news = bool(key.text) and key not in self.ends
        lower = self.run(key)[-1] if news else key
        TreeModel.cut(self, key)
        if news:
            self.standings[key] = Standing(main=self.standings[lower].main)

    def touch(self, key: Key) -> None:
        """A use: into main with all that is above, or one life more."""
        TreeModel.touch(self, key)
        mine = self.standings[key]
        if mine.main:
            mine.lives = min(3, mine.lives + 1)
        else:
            self.promote(key)

    def promote(self, key: Key) -> None:
        """To the end of main; what is above has no place of its own."""
        self.standings[key].place = self.place()
        for end in [*self.above(key), key]:
            self.standings[end].main = True

    def grow(self, space: str, text: str, full: list[int], window: list[int], state: int | None) -> None:
        """New runs begin in small, or in main if most of their keys are remembered."""
        before = set(self.ends)
        at = len(text) - len(full)
        if at:
            self.cut(Key(space, text[:at]))
            before.add(Key(space, text[:at]))
        TreeModel.grow(self, space, text, full, window, state)
        for end in sorted(self.ends - before, key=lambda key: len(key.text)):
            run = self.path(end)[at:]
            at += len(run)
            keys = [key for key in run if self.named(key, run[0])]
            known = [key for key in keys if key in self.ghost]
            self.ghost = [key for key in self.ghost if key not in known]
            self.standings[end] = Standing(self.place())
            if 2 * len(known) > len(keys):
                self.promote(end)
                self.seen_again += 1

    def remove_page(self, key: Key) -> None:
        """What leaves small is remembered; the parent inherits from the last page of a run, the run from others."""
        mine = self.standings.pop(key)
        first = self.run(key)[0]
        if not mine.main and self.named(key, first):
            self.ghost = [*(k for k in self.ghost if k != key), key][-(self.room - self.share) :]
        TreeModel.remove_page(self, key)
        above = Key(key.space, key.text[:-1])
        if key != first:
            self.standings[above] = mine
        elif above.text:
            parent = self.standings[above]
            parent.place = max(parent.place, mine.place)

    def flush(self) -> None:
        """In the order in which all would go."""
        self.evict(len(self.pages))
        TreeModel.flush(self)

    # -- who goes --------------------------------------------------------------------------------------------

    @property
    def share(self) -> int:
        """Pages that small may have."""
        return max(1, self.room // 10)

    def small_pages(self) -> int:
        """Pages of all runs in small."""
        return sum(len(self.run(end)) for end, one in self.standings.items() if not one.main)

    def leaves(self, *, main: bool) -> list[Key]:
        """Ends of the leaves of a queue that nobody holds, by place."""
        free = [end for end in self.ends if not (self.held(end) or self.children(end))]
        return sorted((end for end in free if self.standings[end].main is main), key=lambda e: self.standings[e].place)

    def next_out(self) -> Key | None:
        """The run that goes next."""
        small = self.leaves(main=False)
        if small and self.small_pages() > self.share:
            return small[0]
        while main := self.leaves(main=True):
            first = self.standings[main[0]]
            if not first.lives:
                return main[0]
            first.lives -= 1
            first.place = self.place()
            self.spent += 1
        return small[0] if small else None

    def evict(self, n: int) -> int:
        """Take the end of the run that goes next, whole or as much as is wanted."""
        freed = 0
        while freed < n and (end := self.next_out()) is not None:
            count = min(n - freed, len(self.run(end)))
            for key in reversed(self.run(end)[-count:]):
                self.remove_page(key)
            freed += count
        return freed


def model_of(shape: Shape) -> TreeModel:
    """The reference model of a shape."""
    gates = (shape.reach, shape.window_gates, shape.state_gates)
    if shape.eviction is Eviction.LRU:
        return TreeModel(*gates)
    return QueuesModel(*gates, room=shape.room, block=block_pages(shape.page_size))
