"""How a run narrows and widens what it asks for, played against tables of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgretention.window import Claim, Cursor, Window


@dataclass
class Table:
    """Rows numbered in the order they expire; some cannot go, some are locked while the cursor passes first."""

    rows: list[int]
    bad: set[int] = field(default_factory=set)
    transactions: int = 0
    refused: int = 0
    named: list[int] = field(default_factory=list)
    skipped: int = 0

    def run(self, window: Window) -> None:
        """Until the window says that the run is through or that it is hopeless."""
        while True:
            self.transactions += 1
            after = -1 if window.cursor is None else int(window.cursor.key)
            claimed = [row for row in self.rows if row > after][: window.size]
            last = Cursor("", str(claimed[-1])) if claimed else None
            if not self.bad.intersection(claimed):
                self.rows = [row for row in self.rows if row not in claimed]
                if window.deleted(len(claimed), last):
                    return
                continue
            assert last is not None
            self.refused += 1
            if window.refused(Claim(len(claimed), "", last)):
                if len(claimed) == 1:
                    self.named += claimed
                else:
                    self.skipped += len(claimed)
                if window.hopeless:
                    return


numbers = st.integers(0, 60)


@given(st.integers(0, 60), st.sets(numbers), st.integers(1, 20))
def test_all_rows_go_but_the_bad_ones_and_each_of_those_is_named_once(rows: int, bad: set[int], size: int) -> None:
    table = Table(list(range(rows)), bad)
    bad_rows = sorted(bad.intersection(table.rows))

    table.run(Window(size))

    assert table.rows == table.named == bad_rows
    assert table.refused <= 2 * len(bad_rows) * (size.bit_length() + 1)


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 10), st.integers(0, 5))
def test_a_run_is_never_refused_more_often_than_it_may_be(rows: int, size: int, bisecting: int, skipping: int) -> None:
    table = Table(list(range(rows)), set(range(rows)))

    table.run(Window(size, bisecting=bisecting, skipping=skipping))

    assert table.rows == list(range(rows))
    assert table.refused <= bisecting + skipping + 1
    assert len(table.named) + table.skipped <= rows


def test_a_million_bad_rows_do_not_become_a_million_transactions() -> None:
    window = Window(5000)
    refused, after = 0, 0
    while not window.hopeless and after < 1_000_000:
        refused += 1
        if window.refused(Claim(window.size, "", Cursor("", ""))):
            after += window.size or 1
    assert refused <= 11_001


def test_clean_rows_behind_too_many_bad_ones_still_go() -> None:
    table = Table(list(range(100)), set(range(40)))

    table.run(Window(10, bisecting=8, skipping=20))

    assert set(table.rows) >= set(range(40))
    assert len(table.rows) < 50
    assert table.skipped > 0


def test_a_slow_batch_is_halved_and_the_size_comes_back_after_full_batches() -> None:
    window = Window(8)
    last = Cursor("", "")

    window.too_slow(Claim(8, "", last))
    assert (window.size, window.fast, window.divided) == (4, 4, False)
    for _ in range(8):
        window.deleted(4, last)
    assert window.size == 8


def test_a_claim_that_is_too_slow_is_halved_too_and_given_up_at_one_row() -> None:
    window = Window(4)

    assert [window.too_slow(None) for _ in range(2)] == [False, False]
    assert (window.size, window.hopeless) == (1, False)
    assert window.too_slow(None) is False
    assert window.hopeless


def test_single_rows_that_are_too_slow_are_left_out_but_three_in_a_row_are_the_database() -> None:
    window = Window(1)
    claim = Claim(1, "", Cursor("2020", "a"))

    assert window.too_slow(claim) is True
    assert window.cursor == claim.last
    window.deleted(1, claim.last)
    assert [window.too_slow(claim) for _ in range(3)] == [True] * 3
    assert window.hopeless


@pytest.mark.parametrize("left_out", [False, True])
def test_the_oldest_rows_are_looked_at_once_more_unless_bad_ones_are_there(*, left_out: bool) -> None:
    window = Window(2)
    last = Cursor("", "")
    window.deleted(2, last)
    if left_out:
        window.refused(Claim(1, "", last))

    assert window.deleted(0, None) is left_out


def test_what_divided_batches_ask_for_adds_up_to_whole_ones_and_never_to_more() -> None:
    window = Window(8, max_batches=2)
    last = Cursor("", "")
    window.deleted(8, last)
    window.refused(Claim(8, "", last))
    window.deleted(4, last)
    assert (window.size, window.used_up) == (4, False)
    window.deleted(3, last)

    assert window.used_up
