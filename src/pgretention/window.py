"""Which expired rows the next batch asks for: how many, and after which one. Knows neither database nor clock.

A run walks over the expired rows from the oldest on. Mostly each batch asks for as many as BatchSize says, and the
next one starts after the last row of it. Two things make it ask for fewer:

* A batch that was too slow is halved, and what was found to be fast enough is kept to. After some full batches twice as
  much is tried again, since a database that is busy now is not busy all night.
* A batch that the database refuses holds at least one row that cannot go. It is halved until that row stands alone; the
  row is left out, and the batches after it grow again by doubling. One bad row costs some small transactions; what lies
  between bad rows is deleted.

A million bad rows must not become a million transactions. When a run has been refused too often it stops looking for
single rows and leaves out whole batches, and when it has been refused too often at that, it is hopeless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BISECTING: Final = 10_000
"""Refused transactions a run may spend on finding single rows; at two or three milliseconds each, half a minute."""

SKIPPING: Final = 1_000
"""Batches a run may leave out as a whole after that."""

_FAST_ENOUGH: Final = 8
"""Full batches in a row after which a larger one is tried again."""

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


class Window:
    """Where a run is and how much it asks for at once.

    `size` root rows after `cursor`; after None means from the oldest on. With `max_batches` the committed batches ask
    for no more rows than so many of `batch_size` would: the parts of a divided batch count together as one.
    """

    def __init__(
        self,
        batch_size: int,
        max_batches: int | None = None,
        *,
        bisecting: int = BISECTING,
        skipping: int = SKIPPING,
    ) -> None:
        self.cursor: Cursor | None = None
        self.fast = batch_size
        """The most that is asked for at once, as far as is known now."""
        self._size = batch_size
        self._batch_size = batch_size
        self._asked = 0
        self._allowed = None if max_batches is None else max_batches * batch_size
        self._bisecting, self._skipping = bisecting, skipping
        self._streak = 0
        self._slow_rows = 0
        self._left_out = False

    @property
    def size(self) -> int:
        """How many root rows the next batch asks for."""
        return self._size if self._allowed is None else min(self._size, self._allowed - self._asked)

    @property
    def used_up(self) -> bool:
        """Whether the run has had all its batches (A-11)."""
        return self._asked == self._allowed

    @property
    def divided(self) -> bool:
        """Whether the run is on its way to, or from, a row that cannot go."""
        return self._size < self.fast

    @property
    def hopeless(self) -> bool:
        """Whether going on would only meet more of the same."""
        return self._skipping < 0 or self._slow_rows >= _SLOW_ROWS

    def deleted(self, rows: int, last: Cursor | None) -> bool:
        """A batch is committed, or nothing was there to claim; returns whether the run is through.

        A batch that was not full has reached the newest expired row. Rows that were locked when the cursor passed are
        found by starting once more from the oldest, unless the rows that cannot go would be met again there.
        """
        full = rows == self.size
        through = not full and (self.cursor is None or self._left_out)
        self.cursor = last if full else None
        self._asked += self.size if rows else 0
        self._slow_rows = 0
        self._grow(full=full)
        return through

    def too_slow(self, claim: Claim | None) -> bool:
        """A batch ran into its timeout: ask for half of it, or leave out, True, the one row that it was."""
        if self.size == 1 or (claim and claim.rows == 1):
            self._slow_rows += 1
            return self._leave_out(claim)
        self.fast = self._size = max(1, (claim.rows if claim else self.size) // 2)
        self._streak = 0
        return False

    def refused(self, claim: Claim) -> bool:
        """The database would not delete the claimed rows: ask for half of them, or leave them out, True."""
        if self._bisecting > 0:
            self._bisecting -= 1
            if claim.rows > 1:
                self._size = claim.rows // 2
                return False
        else:
            self._skipping -= 1
            self._size = self.fast
        return self._leave_out(claim)

    def _leave_out(self, claim: Claim | None) -> bool:
        self._left_out = True
        if claim is None:  # nothing to step over: the next one would be the same
            self._slow_rows = _SLOW_ROWS
            return False
        self.cursor = claim.last
        return True

    def _grow(self, *, full: bool) -> None:
        if self.divided:
            self._size = min(self.fast, self._size * 2)
        elif full and self.fast < self._batch_size:
            self._streak += 1
            if self._streak == _FAST_ENOUGH:
                self._streak = 0
                self._size = self.fast = min(self._batch_size, self.fast * 2)
