"""Which expired rows the next batch asks for: how many, and after which one. Knows neither database nor clock.

A run walks over the expired rows from the oldest on. Mostly each batch asks for as many as BatchSize says, and the
next one starts after the last row of it. Two things make it ask for fewer:

* A batch that was too slow is halved, and what was found to be fast enough is kept to. After some full batches twice as
  much is tried again, since a database that is busy now is not busy all night. Where a batch has a duration to keep to,
  its size follows at once when it takes longer, and slowly when it takes less.
* A batch that the database refuses holds at least one row that cannot go. It is halved until that row stands alone; the
  row is left out, and the batches after it grow again by doubling. One bad row costs some small transactions; what lies
  between bad rows is deleted.

The workers of one run share a `Frontier`, and each has a `Window` of its own.

A million bad rows must not become a million transactions. When a run has been refused too often it stops looking for
single rows and leaves out whole batches, and when it has been refused too often at that, it is hopeless.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

BISECTING: Final = 10_000
"""Refused transactions a run may spend on finding single rows; at two or three milliseconds each, half a minute."""

SKIPPING: Final = 1_000
"""Batches a run may leave out as a whole after that."""

_FAST_ENOUGH: Final = 8
"""Full batches in a row after which a larger one is tried again."""

_STEADY: Final = 4
"""Full batches well within their duration after which a quarter more is tried."""

_WELL_WITHIN: Final = 0.75
"""So much of its duration leaves room for a quarter more rows."""

_SLOW_ROWS: Final = 3
"""Single rows in a row that are too slow: that is the database, not the row."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last root row claimed, as texts: PostgreSQL's dates reach further than Python's."""

    expiry: str
    key: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a batch holds under lock: how many root rows, their keys as PostgreSQL's text of an array, the last one."""

    rows: int
    keys: str
    last: Cursor


@dataclass(frozen=True, slots=True)
class Asking:
    """What a batch is to claim, `size` root rows after `cursor`, and whom to tell what it got, None for nothing."""

    size: int
    cursor: Cursor | None
    claimed: Callable[[Claim | None], None]


class Frontier:
    """What the parallel workers of a run share: how far their claims have come and how much may be asked for.

    `cursor` is the last row that was claimed, None before the first; `short` whether a claim got less than it asked for
    and so reached the newest expired row, `drained` whether it began at the oldest. `fast` is the most that is asked
    for at once, as far as is known now. With `max_batches` the run asks for no more rows than so many of `batch_size`
    would: the parts of a divided batch count together as one, and one that is left out does not count. A batch is to
    take no longer than `batch_duration`, where there is one.
    """

    def __init__(
        self,
        batch_size: int,
        max_batches: int | None = None,
        *,
        batch_duration: timedelta | None = None,
        bisecting: int = BISECTING,
        skipping: int = SKIPPING,
    ) -> None:
        self.turn = threading.RLock()
        """Held from asking to claiming, so that the batches of several workers are stretches that follow each other."""
        self.behind: list[tuple[Cursor | None, int]] = []
        """Stretches claimed by workers that are gone, each as where it begins and its number of rows."""
        self.cursor: Cursor | None = None
        self.short = False
        self.drained = False
        self.fast = batch_size
        self.batch_size = batch_size
        self.batch_duration = batch_duration
        self.asked = 0
        self.allowed = sys.maxsize if max_batches is None else max_batches * batch_size
        self.bisecting, self.skipping = bisecting, skipping
        self.streak = 0
        self.slow_rows = 0
        self.left_out = False

    @property
    def hopeless(self) -> bool:
        """Whether going on would only meet more of the same."""
        return self.skipping < 0 or self.slow_rows >= _SLOW_ROWS

    def goes_on(self) -> bool:
        """Whether a worker that is alone by now has something left to do, when all of them are through.

        Rows that were locked when the cursor passed are found by starting once more from the oldest, unless the rows
        that cannot go would be met again there.
        """
        if self.behind:
            return True
        if self.drained or self.left_out:
            return False
        self.cursor, self.short = None, False
        return True


class Window:
    """What one worker asks for next: `size` root rows after `cursor`; after None means from the oldest on.

    A stretch of rows that it has claimed is its own until it is deleted or left out. A batch that was rolled back is
    asked for again from where it began, whole or in parts, while the frontier has moved on.
    """

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._begin: Cursor | None = None
        self._rest = 0
        self._part: int | None = None
        self._full = False
        self._asked = 0

    @property
    def cursor(self) -> Cursor | None:
        """The root row after which the next batch begins."""
        return self._begin if self._rest else self._frontier.cursor

    @property
    def size(self) -> int:
        """How many root rows the next batch asks for."""
        left = self._rest or self._frontier.allowed - self._frontier.asked
        return min(self._part or self._frontier.fast, left)

    @property
    def through(self) -> bool:
        """Whether nothing is left to claim for this worker."""
        return self._rest == 0 and self._frontier.short

    @property
    def used_up(self) -> bool:
        """Whether the run has had all its batches (A-11)."""
        return self._rest == 0 and self._frontier.asked >= self._frontier.allowed

    @property
    def divided(self) -> bool:
        """Whether this worker is on its way to, or from, a row that cannot go."""
        return self._part is not None

    @contextmanager
    def claiming(self) -> Generator[Asking]:
        """What the next batch asks for; no other worker claims before it is told, or the inside is left."""
        with ExitStack() as turn:
            turn.enter_context(self._frontier.turn)
            if not self._rest and self._frontier.behind:
                self._begin, self._rest = self._frontier.behind.pop()

            def claimed(claim: Claim | None) -> None:
                self.claimed(claim)
                turn.close()

            self._asked = self.size
            yield Asking(self._asked, self.cursor, claimed)

    def claimed(self, claim: Claim | None) -> None:
        """So many rows are locked now, at most as many as were asked for."""
        rows, frontier = claim.rows if claim else 0, self._frontier
        self._full = rows == self.size
        if self._rest:
            self._rest = self._rest if self._full else rows  # somebody else has the others
            return
        frontier.asked += self.size if rows else 0
        frontier.short = not self._full
        frontier.drained = frontier.short and frontier.cursor is None
        self._begin, self._rest = frontier.cursor, rows
        frontier.cursor = claim.last if claim else frontier.cursor

    def deleted(self, claim: Claim, took: timedelta) -> None:
        """What was claimed last is deleted and committed, which took so long."""
        with self._frontier.turn:
            self._go_past(claim)
            self._frontier.slow_rows = 0
            if self._part is not None:
                self._part = self._part * 2 if self._part * 2 < self._frontier.fast else None
            elif self._frontier.batch_duration is None:
                self._grow(_FAST_ENOUGH, self._frontier.fast)
            else:
                self._steer(claim.rows, took / self._frontier.batch_duration)

    def too_slow(self, claim: Claim | None) -> bool:
        """A batch ran into its timeout: ask for half of it, or leave out, True, the one row that it was."""
        with self._frontier.turn:
            rows = claim.rows if claim else self._asked or self.size  # another worker may have claimed meanwhile
            if rows == 1:
                self._frontier.slow_rows += 1
                return self._leave_out(claim)
            self._frontier.fast = min(self._frontier.fast, rows // 2)
            self._frontier.streak = 0
            self._part = None
            return False

    def refused(self, claim: Claim) -> bool:
        """The database would not delete the claimed rows: ask for half of them, or leave them out, True."""
        with self._frontier.turn:
            if self._frontier.bisecting > 0:
                self._frontier.bisecting -= 1
                if claim.rows > 1:
                    self._part = claim.rows // 2
                    return False
            else:
                self._frontier.skipping -= 1
                self._part = None
            return self._leave_out(claim)

    def give_up(self) -> None:
        """This worker is gone: what it had claimed is for another one."""
        with self._frontier.turn:
            if self._rest:
                self._frontier.behind.append((self._begin, self._rest))
            self._rest = 0

    def _leave_out(self, claim: Claim | None) -> bool:
        self._frontier.left_out = True
        if claim is None:  # nothing to step over: the next one would be the same
            self._frontier.slow_rows = _SLOW_ROWS
            return False
        self._go_past(claim)
        self._frontier.asked -= claim.rows
        return True

    def _go_past(self, claim: Claim) -> None:
        self._begin = claim.last
        self._rest -= claim.rows

    def _steer(self, rows: int, used: float) -> None:
        """Ask for as many rows as fit into the duration that a batch has, of which this one `used` so much."""
        frontier = self._frontier
        if used > 1:
            fitting = max(int(rows / used), frontier.fast // 4, 1)  # one stall, a checkpoint's say, is no measure
            frontier.fast, frontier.streak = min(frontier.fast, fitting), 0
        elif used <= _WELL_WITHIN:
            self._grow(_STEADY, max(frontier.fast // 4, 1))
        else:
            frontier.streak = 0

    def _grow(self, after: int, by: int) -> None:
        """Ask for more rows when that many full batches in a row were fast enough."""
        frontier = self._frontier
        if self._full and frontier.fast < frontier.batch_size:
            frontier.streak += 1
            if frontier.streak >= after:
                frontier.streak = 0
                frontier.fast = min(frontier.batch_size, frontier.fast + by)
