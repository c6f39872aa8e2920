"""The picture of the foreign keys: every table once, none on another, every key an arrow and a line in words."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgretention.page import charts
from pgretention.page.tree import HEIGHT, WIDTH, tree
from pgretention.policy import Table
from pgretention.preflight import Reference
from pgretention.sinks.records import RunRecord, Stretch
from tests.page.states import ACTIVITY, GUESTS, KEYS, NOTES, NOW, SESSIONS, STATES

POLICY = ACTIVITY.policy
STRANGERS = [Table("public", f"{'table' * 12}_{n}") for n in range(4)]
TABLES = [*POLICY.tables, *STRANGERS]


def key(table: Table, to: Table, rule: str = "RESTRICT", *, indexed: bool = True) -> Reference:
    return Reference(f"{table.name}_{to.name}_fkey", table, ("session_id",), to, rule, 7, indexed)


references = st.lists(
    st.tuples(st.sampled_from(TABLES), st.integers(0, 6), st.sampled_from(["RESTRICT", "CASCADE", "SET NULL"])),
    max_size=8,
)


@given(references)
def test_whatever_refers_to_what_no_box_lies_on_another_or_outside(drawn: list[tuple[Table, int, str]]) -> None:
    keys = [key(table, POLICY.tables[place % 3], rule) for table, place, rule in drawn]
    picture = tree(POLICY, keys)
    assert {box.table for box in picture.boxes} == {str(table) for table in (*POLICY.tables, *(k.table for k in keys))}
    for one, other in itertools.combinations(picture.boxes, 2):
        assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT
    for box in picture.boxes:
        assert 0 <= box.x <= picture.width - WIDTH
        assert 0 <= box.y <= picture.height - HEIGHT
    assert len(picture.arrows) == len(picture.keys) == len(keys)


def test_a_stranger_of_a_stranger_has_its_place_too() -> None:
    first, second, *_ = STRANGERS
    picture = tree(POLICY, [*KEYS, key(first, SESSIONS, "CASCADE"), key(second, first, "CASCADE")])
    assert [(arrow.fatal, arrow.declared) for arrow in picture.arrows[-2:]] == [(True, False)] * 2
    assert [box.order for box in picture.boxes if box.table in {str(first), str(second)}] == [None, None]


def test_boxes_say_the_order_of_deletion() -> None:
    assert {box.table: (box.order, box.about) for box in tree(POLICY, KEYS).boxes} == {
        "user_activity.sessions": (3, "deleted third, by ended_at"),
        "user_activity.action_events": (1, "deleted first, with its sessions"),
        "user_activity.property_object_views": (2, "deleted second, with its sessions"),
    }
    (alone,) = tree(GUESTS.policy, []).boxes
    assert (alone.order, alone.about) == (1, "deleted first, by updated_at")


EVENTS, VIEWS, _ = POLICY.tables
SLOW = "No index: every deletion reads the whole table."


@pytest.mark.parametrize(
    ("reference", "meaning"),
    [
        (key(EVENTS, SESSIONS), "Its rows go first, so nothing is in the way."),
        (key(EVENTS, SESSIONS, "CASCADE"), "Its rows go first, so nothing is in the way."),
        (key(EVENTS, VIEWS, "SET NULL"), "Nothing is left to change, since both sides go in the same batch."),
        (key(SESSIONS, SESSIONS), "Rows that it refers to stay, and the run is partial."),
        (NOTES, f"Deletes rows that the policy does not name: no run begins. {SLOW}"),
        (key(STRANGERS[0], SESSIONS), "Rows that it refers to stay, and the run is partial."),
        (key(STRANGERS[0], SESSIONS, "SET NULL"), "A run changes rows of a table that the policy does not name."),
    ],
)
def test_every_key_is_said_in_words(reference: Reference, meaning: str) -> None:
    (said,) = tree(POLICY, [reference]).keys
    assert said.meaning == meaning


def test_charts_have_a_point_for_every_run_that_ended_and_what_it_says() -> None:
    runs = STATES["much"]().history.of(ACTIVITY.name).runs
    deleted, backlog, throttled = charts.of_job(ACTIVITY, runs)
    assert [len(chart.points) for chart in (deleted, backlog, throttled)] == [1000] * 3
    last = runs[-1]
    assert deleted.points[-1].values == tuple(map(float, last.deleted.values()))
    assert deleted.columns == tuple(last.deleted)
    assert sum(filter(None, throttled.points[-1].values)) == sum(last.throttled.values())
    assert (backlog.points[-1].values, backlog.points[-1].href) == ((0.0,), f"/runs/{last.run_id}")


def test_the_chart_of_a_run_says_where_several_batches_are_one_point() -> None:
    whole = RunRecord(
        GUESTS.name, "x", NOW, stretches=(Stretch(1, 1, 1.0, 0.5, 0.5, (9,)), Stretch(2, 1, 2.0, 0.7, 0.7, (8,)))
    )
    durations, rows = charts.of_run(GUESTS, whole)
    assert [(point.label, point.values) for point in durations.points] == [("1", (0.5,)), ("2", (0.7,))]
    assert durations.limit == ("the limit of a statement", 60.0)
    merged = RunRecord(GUESTS.name, "x", NOW, stretches=(Stretch(1, 4, 1.0, 2.0, 0.9, (40,)),))
    durations, rows = charts.of_run(GUESTS, merged)
    assert [(point.label, point.values) for point in durations.points] == [("1 to 4", (0.9,))]
    assert durations.columns == ("longest",)
    assert [point.values for point in rows.points] == [(10.0,)]
