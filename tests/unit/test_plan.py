"""The exact statements of both jobs, and the refusals, without a server."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import sql

from pgretention import plan
from pgretention.catalog import Catalog, ForeignKey, TableFacts
from pgretention.errors import Refusal
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.plan import Plan
from pgretention.policy import Child, Equals, IsNull, Policy, Table

GOLDEN = Path(__file__).parent.parent / "golden"

YEAR = timedelta(days=365)
INSTANT = "timestamp with time zone"


def table(name: Table, unique: str = "id", **columns: str) -> TableFacts:
    return TableFacts(name, "table", has_inheritors=False, columns=columns, unique=frozenset({unique}))


def catalog(*tables: TableFacts, foreign_keys: tuple[ForeignKey, ...] = ()) -> Catalog:
    return Catalog({facts.table: facts for facts in tables}, foreign_keys)


ACTIVITY = activity_retention.policy(YEAR)
EVENTS, VIEWS, SESSIONS = ACTIVITY.tables
USER_ACTIVITY = catalog(
    table(SESSIONS, id="uuid", status="text", ended_at=INSTANT),
    table(VIEWS, id="uuid", session_id="uuid"),
    table(EVENTS, id="uuid", session_id="uuid"),
    foreign_keys=(
        ForeignKey("events_session", EVENTS, ("session_id",), SESSIONS, ("id",), "RESTRICT"),
        ForeignKey("views_session", VIEWS, ("session_id",), SESSIONS, ("id",), "RESTRICT"),
        ForeignKey("views_event", VIEWS, ("apply_filter_event_id",), EVENTS, ("id",), "SET NULL"),
        ForeignKey("events_view", EVENTS, ("property_object_view_id",), VIEWS, ("id",), "SET NULL"),
    ),
)
GUESTS = guest_favorites_cleanup.policy(YEAR)
FAVORITES = catalog(table(GUESTS.root, id="uuid", user_id="uuid", updated_at=INSTANT))


def statements(plan: Plan, batch_size: int) -> dict[str, sql.Composed]:
    return {
        "claim_first": plan.claim_first(batch_size),
        "claim_next": plan.claim_next(batch_size),
        "delete": plan.delete,
    }


@pytest.mark.req("A-01", "A-02", "A-04", "A-05", "A-10")
@pytest.mark.parametrize("name", ["claim_first", "claim_next", "delete"])
def test_the_statements_of_activity_retention_are_exactly_these(name: str) -> None:
    text = statements(plan.build(ACTIVITY, USER_ACTIVITY), 5000)[name].as_string()

    assert text + "\n" == (GOLDEN / f"activity_retention_{name}.sql").read_text()


@pytest.mark.req("F-01", "F-02", "F-07")
@pytest.mark.parametrize("name", ["claim_first", "claim_next", "delete"])
def test_the_statements_of_guest_favorites_cleanup_are_exactly_these(name: str) -> None:
    text = statements(plan.build(GUESTS, FAVORITES), 1000)[name].as_string()

    assert text + "\n" == (GOLDEN / f"guest_favorites_cleanup_{name}.sql").read_text()


@pytest.mark.req("A-06", "F-02")
@pytest.mark.parametrize(("policy", "facts"), [(ACTIVITY, USER_ACTIVITY), (GUESTS, FAVORITES)], ids=lambda _: "")
def test_every_statement_repeats_the_guard_and_the_bound_cutoff_and_none_asks_for_the_time(
    policy: Policy, facts: Catalog
) -> None:
    guard = {ACTIVITY: "\"status\" OPERATOR(pg_catalog.=) 'Inactive'", GUESTS: '"user_id" IS NULL'}[policy]
    built = plan.build(policy, facts)
    for statement in (*statements(built, 10).values(), built.expired, built.oldest_age):
        text = statement.as_string().replace("%(now)s", "a bound instant")
        assert guard in text
        assert f'"{policy.expiry}" OPERATOR(pg_catalog.<) %(cutoff)s' in text
        assert not any(word in text.lower() for word in ("now", "current_", "clock_", "localtime"))


def test_names_and_values_are_quoted_whatever_they_hold() -> None:
    root = Table('My "Shop"', "or ders")
    policy = Policy("p", root, "Key", "Ended At", (Equals('a"b', "it's"), IsNull("select")), YEAR)
    facts = table(root, "Key", **{"Key": "text", "Ended At": INSTANT, 'a"b': "text", "select": "text"})

    text = plan.build(policy, catalog(facts)).claim_first(1).as_string()

    assert 'FROM ONLY "My ""Shop"""."or ders"' in text
    assert '"a""b" OPERATOR(pg_catalog.=) \'it\'\'s\' AND "select" IS NULL AND "Ended At" OPERATOR' in text
    assert 'ORDER BY "Ended At", "Key"' in text


def test_a_key_of_any_other_type_is_refused_and_told_which_ones_are_not() -> None:
    facts = catalog(table(GUESTS.root, id="numeric", user_id="uuid", updated_at=INSTANT))

    assert reasons(GUESTS, facts) == (
        "favorites.favorites.id: is of type numeric; a key must be uuid, bigint, integer, smallint, text",
    )


def test_the_type_of_the_key_is_that_of_the_column() -> None:
    built = plan.build(GUESTS, catalog(table(GUESTS.root, id="bigint", user_id="uuid", updated_at=INSTANT)))

    assert "%(after_key)s::pg_catalog.int8" in built.claim_next(1).as_string()


def reasons(policy: Policy, facts: Catalog) -> tuple[str, ...]:
    with pytest.raises(Refusal) as refusal:
        plan.build(policy, facts)
    return refusal.value.reasons


def changed(table: Table, change: Callable[[TableFacts], TableFacts]) -> Catalog:
    return replace(USER_ACTIVITY, tables={**USER_ACTIVITY.tables, table: change(USER_ACTIVITY.tables[table])})


def retyped(table: Table, **columns: str) -> Catalog:
    return changed(table, lambda facts: replace(facts, columns={**facts.columns, **columns}))


def without(table: Table, column: str) -> Catalog:
    def drop(facts: TableFacts) -> TableFacts:
        return replace(facts, columns={name: kind for name, kind in facts.columns.items() if name != column})

    return changed(table, drop)


REFUSED = {
    "a missing root": (
        replace(USER_ACTIVITY, tables={name: USER_ACTIVITY.tables[name] for name in (VIEWS, EVENTS)}),
        "user_activity.sessions: no such table",
    ),
    "a missing child": (
        replace(USER_ACTIVITY, tables={name: USER_ACTIVITY.tables[name] for name in (SESSIONS, EVENTS)}),
        "user_activity.property_object_views: no such table",
    ),
    "a missing key": (without(SESSIONS, "id"), "user_activity.sessions: has no column id"),
    "a missing expiry": (without(SESSIONS, "ended_at"), "user_activity.sessions: has no column ended_at"),
    "a missing guard": (without(SESSIONS, "status"), "user_activity.sessions: has no column status"),
    "a missing child column": (
        without(VIEWS, "session_id"),
        "user_activity.property_object_views: has no column session_id",
    ),
    "an expiry without a zone": (
        retyped(SESSIONS, ended_at="timestamp without time zone"),
        "user_activity.sessions.ended_at: is of type timestamp without time zone",
    ),
    "an expiry in milliseconds": (
        retyped(SESSIONS, ended_at="bigint"),
        "user_activity.sessions.ended_at: is of type bigint",
    ),
    "a child's key of another type": (
        retyped(EVENTS, session_id="text"),
        "user_activity.action_events.session_id: is of type text",
    ),
    "a key that is not unique": (
        changed(SESSIONS, lambda facts: replace(facts, unique=frozenset({"status"}))),
        "user_activity.sessions.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "a guard that equals more than its text": (
        retyped(SESSIONS, status="citext"),
        "user_activity.sessions.status: is of type citext",
    ),
    "a cascade that nobody declared": (
        replace(
            USER_ACTIVITY,
            foreign_keys=(ForeignKey("next", SESSIONS, ("continues",), SESSIONS, ("id",), "CASCADE"),),
        ),
        "user_activity.sessions: its foreign key next to user_activity.sessions is ON DELETE CASCADE",
    ),
    "a view": (
        changed(SESSIONS, lambda facts: replace(facts, kind="view")),
        "user_activity.sessions: is a view; only plain tables can be cleaned",
    ),
    "a partitioned child": (
        changed(EVENTS, lambda facts: replace(facts, kind="partitioned table")),
        "user_activity.action_events: is a partitioned table; only plain tables can be cleaned",
    ),
    "an inherited child": (
        changed(EVENTS, lambda facts: replace(facts, has_inheritors=True)),
        "user_activity.action_events: is a table that others inherit from; only plain tables can be cleaned",
    ),
    "a root that must go before its child": (
        replace(
            USER_ACTIVITY,
            foreign_keys=(ForeignKey("sessions_event", SESSIONS, ("event_id",), EVENTS, ("id",), "NO ACTION"),),
        ),
        "user_activity.sessions: must be deleted before user_activity.action_events, since its",
    ),
    "children in the wrong order": (
        replace(
            USER_ACTIVITY, foreign_keys=(ForeignKey("views_event", VIEWS, ("event_id",), EVENTS, ("id",), "RESTRICT"),)
        ),
        "user_activity.property_object_views: must be deleted before user_activity.action_events, since",
    ),
}


@pytest.mark.req("A-07")
@pytest.mark.parametrize("what", REFUSED)
def test_what_a_policy_does_not_fit_is_refused_in_one_line_that_names_it(what: str) -> None:
    facts, reason = REFUSED[what]

    (line,) = reasons(ACTIVITY, facts)

    assert line.startswith(reason)
    assert "\n" not in line


@pytest.mark.req("A-07")
def test_every_reason_is_given_at_once() -> None:
    facts = catalog(
        table(SESSIONS, "status", id="numeric", status="text", ended_at="date"),
        table(VIEWS, id="uuid"),
        table(EVENTS, id="uuid", session_id="numeric"),
    )

    assert [reason.split(":")[0] for reason in reasons(ACTIVITY, facts)] == [
        "user_activity.sessions.id",
        "user_activity.sessions.id",
        "user_activity.sessions.ended_at",
        "user_activity.property_object_views",
    ]


@pytest.mark.req("A-04")
def test_every_operator_and_function_is_named_with_its_schema() -> None:
    """Or one in a schema on the search path could take its place. What PostgreSQL's grammar itself knows is exempt."""
    for policy, facts in (ACTIVITY, USER_ACTIVITY), (GUESTS, FAVORITES):
        built = plan.build(policy, facts)
        every = [*statements(built, 10).values(), built.expired, built.oldest_age, sql.SQL(plan.CUTOFF)]
        for statement in every:
            text = statement.as_string()
            text = re.sub(r"OPERATOR\(pg_catalog\.[-<>=]+\)|%\(\w+\)s|\"[^\"]*\"|'[^']*'", "", text)
            assert not re.search(r"[-<>=+*/]", text.replace("(*)", ""))
            named = re.findall(r"([\w.]+)\(", text)
            assert {name for name in named if not name.startswith("pg_catalog.")} <= {"extract", "NULLIF"}


@pytest.mark.req("A-02")
def test_two_children_that_refuse_each_other_s_deletion_are_refused_in_either_order() -> None:
    cycle = replace(
        USER_ACTIVITY,
        foreign_keys=(
            ForeignKey("views_event", VIEWS, ("event_id",), EVENTS, ("id",), "RESTRICT"),
            ForeignKey("events_view", EVENTS, ("view_id",), VIEWS, ("id",), "RESTRICT"),
        ),
    )
    for children in ACTIVITY.children, ACTIVITY.children[::-1]:
        assert len(reasons(replace(ACTIVITY, children=children), cycle)) == 1


def test_a_child_may_stand_in_either_order_where_no_foreign_key_refuses() -> None:
    turned = replace(ACTIVITY, children=tuple(reversed(ACTIVITY.children)))

    text = plan.build(turned, USER_ACTIVITY).delete.as_string()

    assert text.index("property_object_views") < text.index("action_events") < text.index('"sessions"')


def test_a_child_alone_has_its_count_and_the_root_the_last_one() -> None:
    policy = replace(ACTIVITY, children=(Child(EVENTS, "session_id"),))

    text = plan.build(policy, USER_ACTIVITY).delete.as_string()

    assert text.endswith('SELECT (SELECT rows FROM "counted_1"), (SELECT rows FROM "counted_2")')
