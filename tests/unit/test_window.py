"""How a run narrows and widens what it asks for, played against tables of numbers."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgretention.window import Claim, Cursor, Frontier, Window

NO_TIME = timedelta(0)
SECOND = timedelta(seconds=1)


def claim_of(rows: list[int]) -> Claim | None:
    return Claim(len(rows), "", Cursor("", str(rows[-1]))) if rows else None


@dataclass
class Table:
    """Rows numbered in the order they expire; some cannot go, some are locked while the cursor passes first."""

    rows: list[int]
    bad: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    transactions: int = 0
    refused: int = 0
    named: list[int] = field(default_factory=list)
    skipped: int = 0

    def claim(self, window: Window) -> list[int]:
        """Rows for a batch, locked from now on and told to the window."""
        self.transactions += 1
        after = -1 if window.cursor is None else int(window.cursor.key)
        rows = [row for row in self.rows if row > after and row not in self.locked][: window.size]
        self.locked |= set(rows)
        window.claimed(claim_of(rows))
        return rows

    def end(self, window: Window, rows: list[int]) -> None:
        """What was claimed is deleted, or cannot be."""
        self.locked -= set(rows)
        claim = claim_of(rows)
        if claim is None:
            return
        if not self.bad.intersection(rows):
            self.rows = [row for row in self.rows if row not in rows]
            window.deleted(claim, NO_TIME)
            return
        self.refused += 1
        if window.refused(claim):
            if len(rows) == 1:
                self.named += rows
            else:
                self.skipped += len(rows)

    def run(self, frontier: Frontier) -> None:
        """What the only worker of a run does."""
        window = Window(frontier)
        while frontier.goes_on():
            while not (window.through or window.used_up or frontier.hopeless):
                self.end(window, self.claim(window))
            if frontier.hopeless:
                return


def deleted(window: Window, rows: int, *, key: str = "", took: timedelta = NO_TIME) -> None:
    claim = Claim(rows, "", Cursor("", key))
    window.claimed(claim)
    window.deleted(claim, took)


def refused(window: Window, rows: int) -> bool:
    claim = Claim(rows, "", Cursor("", ""))
    window.claimed(claim)
    return window.refused(claim)


def too_slow(window: Window, rows: int, *, key: str = "") -> bool:
    claim = Claim(rows, "", Cursor("", key))
    window.claimed(claim)
    return window.too_slow(claim)


numbers = st.integers(0, 60)


@given(st.integers(0, 60), st.sets(numbers), st.integers(1, 20))
def test_all_rows_go_but_the_bad_ones_and_each_of_those_is_named_once(rows: int, bad: set[int], size: int) -> None:
    table = Table(list(range(rows)), bad)
    bad_rows = sorted(bad.intersection(table.rows))

    table.run(Frontier(size))

    assert table.rows == table.named == bad_rows
    assert table.refused <= 2 * len(bad_rows) * (size.bit_length() + 1)


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 10), st.integers(0, 5))
def test_a_run_is_never_refused_more_often_than_it_may_be(rows: int, size: int, bisecting: int, skipping: int) -> None:
    table = Table(list(range(rows)), set(range(rows)))

    table.run(Frontier(size, bisecting=bisecting, skipping=skipping))

    assert table.rows == list(range(rows))
    assert table.refused <= bisecting + skipping + 1
    assert len(table.named) + table.skipped <= rows


def test_a_million_bad_rows_do_not_become_a_million_transactions() -> None:
    frontier = Frontier(5000)
    window = Window(frontier)
    count, after = 0, 0
    while not frontier.hopeless and after < 1_000_000:
        count += 1
        size = window.size
        if refused(window, size):
            after += size
    assert count <= 11_001


def test_clean_rows_behind_too_many_bad_ones_still_go() -> None:
    table = Table(list(range(100)), set(range(40)))

    table.run(Frontier(10, bisecting=8, skipping=20))

    assert set(table.rows) >= set(range(40))
    assert len(table.rows) < 50
    assert table.skipped > 0


@given(st.integers(0, 80), st.sets(numbers, max_size=6), st.integers(1, 12), st.integers(2, 4), st.integers())
def test_windows_that_share_a_frontier_delete_each_row_that_can_go_and_lose_none_of_a_window_that_is_gone(
    rows: int, bad: set[int], size: int, workers: int, seed: int
) -> None:
    luck, table, frontier = random.Random(seed), Table(list(range(rows)), bad), Frontier(size)
    bad_rows = sorted(bad.intersection(table.rows))
    windows = [Window(frontier) for _ in range(workers)]
    lead, working = windows[0], list(windows)
    flying: dict[Window, list[int]] = {}
    while working:
        window = luck.choice(working)
        rows_in_flight = flying.pop(window, None)
        if rows_in_flight is None:
            with window.claiming():
                if window.through:
                    working.remove(window)
                else:
                    flying[window] = table.claim(window)
        elif window is not lead and luck.random() < 0.1:  # its connection is lost
            table.locked -= set(rows_in_flight)
            window.give_up()
            working.remove(window)
        else:
            table.end(window, rows_in_flight)
    while frontier.goes_on():
        while True:
            with lead.claiming():
                if lead.through:
                    break
                claimed = table.claim(lead)
            table.end(lead, claimed)

    assert table.rows == bad_rows
    assert sorted(table.named) == bad_rows


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 6))
def test_windows_that_share_a_frontier_never_ask_for_more_than_all_batches_together_may(
    rows: int, size: int, batches: int
) -> None:
    table, frontier = Table(list(range(rows))), Frontier(size, batches)
    one, two = Window(frontier), Window(frontier)
    claimed = []
    for _ in range(rows):
        for window in (one, two):
            if not window.used_up:
                claimed += table.claim(window)
        one.give_up()
        two.give_up()

    assert len(claimed) <= size * batches


def test_nobody_claims_between_asking_and_claiming_of_another() -> None:
    frontier = Frontier(4)
    one, two = Window(frontier), Window(frontier)
    seen: list[Cursor | None] = []
    last = Cursor("", "4")

    def other() -> None:
        with two.claiming() as asking:
            seen.append(asking.cursor)

    with one.claiming() as asking:
        thread = threading.Thread(target=other)
        thread.start()
        asking.claimed(Claim(4, "", last))
        thread.join()  # it did not wait for what follows the claim

    assert seen == [last]


def test_a_slow_batch_is_halved_and_the_size_comes_back_after_full_batches() -> None:
    frontier = Frontier(8)
    window = Window(frontier)

    too_slow(window, 8)
    assert (window.size, frontier.fast, window.divided) == (4, 4, False)
    for _ in range(8):
        deleted(window, 4)
    assert window.size == 8


def test_a_claim_that_is_too_slow_is_halved_too_and_given_up_at_one_row() -> None:
    frontier = Frontier(4)
    window = Window(frontier)

    assert [window.too_slow(None) for _ in range(2)] == [False, False]
    assert (window.size, frontier.hopeless) == (1, False)
    assert window.too_slow(None) is False
    assert frontier.hopeless


def test_single_rows_that_are_too_slow_are_left_out_but_three_in_a_row_are_the_database() -> None:
    frontier = Frontier(1)
    window = Window(frontier)

    assert too_slow(window, 1, key="a") is True
    assert window.cursor == Cursor("", "a")
    deleted(window, 1)
    assert [too_slow(window, 1) for _ in range(3)] == [True] * 3
    assert frontier.hopeless


@pytest.mark.parametrize("left_out", [False, True])
def test_the_oldest_rows_are_looked_at_once_more_unless_bad_ones_are_there(*, left_out: bool) -> None:
    frontier = Frontier(2)
    window = Window(frontier)
    deleted(window, 2)
    if left_out:
        refused(window, 1)

    window.claimed(None)

    assert window.through
    assert frontier.goes_on() is not left_out
    assert window.cursor == (Cursor("", "") if left_out else None)


def test_what_divided_batches_ask_for_adds_up_to_whole_ones_and_never_to_more() -> None:
    window = Window(Frontier(8, max_batches=2))
    deleted(window, 8)
    refused(window, 8)
    deleted(window, 4)
    assert (window.size, window.used_up) == (4, False)
    deleted(window, 3)
    deleted(window, 1)

    assert window.used_up


def test_batches_that_are_left_out_do_not_count_as_batches() -> None:
    window = Window(Frontier(2, max_batches=1, bisecting=0))

    refused(window, 2)

    assert (window.size, window.used_up) == (2, False)


def test_a_batch_that_took_longer_than_it_should_is_followed_by_one_that_would_not_have() -> None:
    window = Window(Frontier(1000, batch_duration=SECOND))
    deleted(window, 1000, took=2 * SECOND)
    assert window.size == 500
    deleted(window, 500, took=1.25 * SECOND)
    assert window.size == 400


def test_one_stall_is_no_measure_and_a_batch_never_asks_for_nothing() -> None:
    window = Window(Frontier(1000, batch_duration=SECOND))
    deleted(window, 1000, took=100 * SECOND)
    assert window.size == 250
    for _ in range(10):
        deleted(window, window.size, took=100 * SECOND)
    assert window.size == 1


def test_batches_well_within_their_duration_grow_slowly_and_never_beyond_their_size() -> None:
    frontier = Frontier(1000, batch_duration=SECOND)
    window = Window(frontier)
    deleted(window, 1000, took=2 * SECOND)
    sizes = []
    for _ in range(40):
        sizes.append(window.size)
        deleted(window, window.size, took=0.5 * SECOND)
    assert sizes[:9] == [500] * 4 + [625] * 4 + [781]
    assert max(sizes) == window.size == 1000


@pytest.mark.parametrize("took", [0.76, 1.0])
def test_batches_that_fill_their_duration_stay_as_they_are(took: float) -> None:
    window = Window(Frontier(1000, batch_duration=SECOND))
    deleted(window, 1000, took=2 * SECOND)
    for _ in range(20):
        deleted(window, 500, took=took * SECOND)
    assert window.size == 500


def test_a_batch_that_was_not_full_says_nothing_about_larger_ones() -> None:
    window = Window(Frontier(1000, batch_duration=SECOND))
    deleted(window, 1000, took=2 * SECOND)
    for _ in range(20):
        deleted(window, 499, took=NO_TIME)
    assert window.size == 500


def test_a_small_remainder_and_a_stall_cost_no_more_than_a_stall() -> None:
    window = Window(Frontier(10_000, batch_duration=SECOND))
    deleted(window, 1, took=2 * SECOND)
    assert window.size == 2500


def test_a_claim_that_is_too_slow_is_halved_by_what_it_asked_for_whatever_others_claim_meanwhile() -> None:
    frontier = Frontier(8, max_batches=1)
    slow, other = Window(frontier), Window(frontier)
    with slow.claiming():
        pass
    other.claimed(Claim(8, "", Cursor("", "")))

    slow.too_slow(None)

    assert frontier.fast == 4


@given(st.integers(1, 5000), st.lists(st.floats(0, 1000), max_size=50))
def test_whatever_batches_take_the_next_one_asks_for_at_least_one_row_and_at_most_its_size(
    size: int, taken: list[float]
) -> None:
    window = Window(Frontier(size, batch_duration=SECOND))
    for took in taken:
        deleted(window, window.size, took=took * SECOND)
        assert 1 <= window.size <= size


def test_without_a_duration_to_keep_to_no_time_is_too_long() -> None:
    window = Window(Frontier(1000))
    deleted(window, 1000, took=1000 * SECOND)
    assert window.size == 1000
