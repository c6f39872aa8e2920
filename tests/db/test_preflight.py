"""Every finding of a check: provoked once, and absent from the reference schema under the least-privilege role."""

from __future__ import annotations

from datetime import timedelta
from typing import LiteralString

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.clock import Clock, SystemClock
from pgretention.job import Brake, Job, Pace, Safety
from pgretention.preflight import Finding, Severity, inspect, server
from pgretention.preflight.server import Old
from pgretention.report import BatchDone, Fact
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, GUESTS, job, run
from tests.support.transaction_pooler import transaction_pooler
from tests.support.triggers import on_delete
from tests.support.wrong_clocks import FastClock

Admin = Connection[TupleRow]

NOW = Old(timedelta(0), 0)


def found(database: Database, this: Job | None = None, clock: Clock | None = None) -> list[Finding]:
    """What is found, but for sessions of the tests that the role does not see."""
    findings = inspect(this or job(ACTIVITY), database.worker_dsn, clock or SystemClock(), older_than=NOW)
    return [finding for finding in findings if finding.code != "unseen-transactions"]


def only(findings: list[Finding], code: str) -> Finding:
    """The one finding of that kind."""
    (finding,) = [finding for finding in findings if finding.code == code]
    return finding


@pytest.mark.parametrize("policy", [ACTIVITY, GUESTS], ids=lambda policy: policy.name)
def test_nothing_is_found_in_the_reference_schema_under_the_least_privilege_role(
    database: Database, policy: object
) -> None:
    assert found(database, job(ACTIVITY if policy is ACTIVITY else GUESTS)) == []


UNDECLARED: dict[str, tuple[LiteralString, str, Severity]] = {
    "CASCADE": ("ON DELETE CASCADE", "undeclared-cascade", Severity.ERROR),
    "RESTRICT": ("ON DELETE RESTRICT", "undeclared-reference", Severity.WARNING),
    "NO ACTION": ("", "undeclared-reference", Severity.WARNING),
    "SET NULL": ("ON DELETE SET NULL", "undeclared-set-null", Severity.WARNING),
    "SET DEFAULT": ("ON DELETE SET DEFAULT", "undeclared-set-null", Severity.WARNING),
}


@pytest.mark.parametrize("rule", UNDECLARED)
def test_a_table_that_the_policy_does_not_name_is_found_with_what_would_happen_to_its_rows(
    database: Database, admin: Admin, rule: str
) -> None:
    clause, code, severity = UNDECLARED[rule]
    admin.execute(
        sql.SQL("CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions {})").format(
            sql.SQL(clause)
        )
    )
    (finding,) = found(database)
    assert (finding.code, finding.severity, finding.object) == (code, severity, "public.notes (session)")
    assert rule in finding.why


def test_what_a_cascade_takes_along_further_down_is_found_too_and_the_fix_is_sql_that_works(
    database: Database, admin: Admin
) -> None:
    admin.execute(
        "CREATE TABLE public.a (id uuid PRIMARY KEY REFERENCES user_activity.property_object_views ON DELETE CASCADE)"
    )
    admin.execute("CREATE TABLE public.b (id uuid PRIMARY KEY REFERENCES public.a ON DELETE CASCADE)")
    admin.execute("CREATE TABLE public.c (id uuid PRIMARY KEY REFERENCES public.b ON DELETE SET NULL)")
    findings = found(database)
    assert [(finding.object, finding.code) for finding in findings] == [
        ("public.a (id)", "undeclared-cascade"),
        ("public.b (id)", "undeclared-cascade"),
        ("public.c (id)", "undeclared-set-null"),
    ]

    for finding in findings:
        admin.execute(finding.fix.encode())

    assert [(finding.object, finding.code) for finding in found(database)] == [
        ("public.a (id)", "undeclared-reference")
    ]


def test_a_table_that_refers_to_itself_is_found(database: Database, admin: Admin) -> None:
    admin.execute("ALTER TABLE favorites.favorites ADD COLUMN copy_of uuid REFERENCES favorites.favorites")
    findings = found(database, job(GUESTS))
    assert only(findings, "undeclared-reference").object == "favorites.favorites (copy_of)"
    assert only(findings, "unindexed-reference").severity is Severity.NOTE


@pytest.mark.parametrize(
    ("index", "about"),
    [
        ("ix_action_events_session_id", "user_activity.action_events (session_id)"),
        (
            "ix_property_object_views_apply_filter_event_id",
            "user_activity.property_object_views (apply_filter_event_id)",
        ),
    ],
)
@pytest.mark.parametrize(("many", "severity"), [(1, Severity.NOTE), (10_001, Severity.ERROR)])
def test_a_referencing_column_without_an_index_is_found_and_the_fix_is_sql_that_works(
    database: Database, admin: Admin, index: LiteralString, about: str, many: int, severity: Severity
) -> None:
    admin.execute(sql.SQL("DROP INDEX user_activity.{}").format(sql.Identifier(index)))
    pretend(admin, about.partition(" ")[0], many)

    finding = only(found(database), "unindexed-reference")
    assert (finding.severity, finding.object) == (severity, about)
    assert f"{many:,} rows" in finding.why

    admin.execute(finding.fix.encode())
    assert found(database) == []


@pytest.mark.parametrize(
    ("definition", "findings"),
    [
        ("(session_id, id)", 0),
        ("(session_id) WHERE session_id IS NOT NULL", 0),
        ("(id, session_id)", 1),
        ("(session_id) WHERE event_type = 'x'", 1),
    ],
)
def test_an_index_counts_when_it_serves_every_look(
    database: Database, admin: Admin, definition: LiteralString, findings: int
) -> None:
    admin.execute("DROP INDEX user_activity.ix_action_events_session_id")
    admin.execute(sql.SQL("CREATE INDEX ON user_activity.action_events {}").format(sql.SQL(definition)))
    assert [finding.code for finding in found(database)] == ["unindexed-reference"] * findings


@pytest.mark.parametrize(("many", "severity"), [(1, Severity.NOTE), (10_001, Severity.ERROR)])
@pytest.mark.parametrize("policy", [ACTIVITY, GUESTS], ids=lambda policy: policy.name)
def test_a_root_without_an_index_in_the_order_of_claims_is_found_and_the_fix_is_sql_that_works(
    database: Database, admin: Admin, policy: object, many: int, severity: Severity
) -> None:
    this = ACTIVITY if policy is ACTIVITY else GUESTS
    for (index,) in admin.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass AND NOT indisprimary",
        [str(this.root)],
    ).fetchall():
        admin.execute(f"DROP INDEX {index}".encode())
    pretend(admin, str(this.root), many)

    finding = only(found(database, job(this)), "no-claim-index")
    assert (finding.severity, finding.object) == (severity, str(this.root))

    admin.execute(finding.fix.encode())
    assert found(database, job(this)) == []


def pretend(admin: Admin, table: str, many: int) -> None:
    """What the planner would know of a table of that size."""
    admin.execute(
        "UPDATE pg_class SET reltuples = %s, relpages = %s WHERE oid = %s::regclass", [many, many // 50 + 1, table]
    )


def test_a_trigger_that_can_keep_a_row_is_a_warning_and_one_that_only_follows_a_note(
    database: Database, admin: Admin
) -> None:
    on_delete(admin, SESSIONS, "NULL")
    admin.execute(
        """
        CREATE FUNCTION public.after() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER later AFTER DELETE ON user_activity.action_events EXECUTE FUNCTION public.after();
        CREATE TRIGGER never BEFORE INSERT ON user_activity.action_events FOR EACH ROW EXECUTE FUNCTION public.after();
        CREATE TRIGGER off BEFORE DELETE ON favorites.favorites FOR EACH ROW EXECUTE FUNCTION public.after();
        ALTER TABLE favorites.favorites DISABLE TRIGGER off;
        """
    )
    kinds = {(finding.code, finding.severity, finding.object.partition(",")[0]) for finding in found(database)}
    assert kinds == {("trigger", Severity.WARNING, str(SESSIONS)), ("trigger", Severity.NOTE, str(EVENTS))}
    assert found(database, job(GUESTS)) == []


@pytest.mark.parametrize(
    ("revoked", "about"),
    [
        ("DELETE ON user_activity.action_events", str(EVENTS)),
        ("SELECT (session_id) ON user_activity.property_object_views", str(VIEWS)),
        ("UPDATE (id) ON user_activity.sessions", str(SESSIONS)),
        ("SELECT (ended_at) ON user_activity.sessions", str(SESSIONS)),
    ],
)
def test_a_missing_privilege_is_found_and_the_fix_is_the_grant(
    database: Database, admin: Admin, revoked: LiteralString, about: str
) -> None:
    worker = sql.Identifier(WORKER)
    admin.execute(sql.SQL("REVOKE {} FROM {}").format(sql.SQL(revoked), worker))

    finding = only(found(database), "missing-privilege")
    assert (finding.severity, finding.object) == (Severity.ERROR, about)

    admin.execute(finding.fix.encode())
    assert found(database) == []


def test_a_schema_that_may_not_be_used_is_found(database: Database, admin: Admin) -> None:
    admin.execute(sql.SQL("REVOKE USAGE ON SCHEMA favorites FROM {}").format(sql.Identifier(WORKER)))
    finding = only(found(database, job(GUESTS)), "missing-privilege")
    assert finding.object == "favorites"
    admin.execute(finding.fix.encode())
    assert found(database, job(GUESTS)) == []


def test_a_superuser_and_an_owner_may_too_much(database: Database, admin: Admin) -> None:
    findings = inspect(job(GUESTS), database.dsn, SystemClock())
    assert only(list(findings), "too-many-privileges").severity is Severity.WARNING

    admin.execute(sql.SQL("GRANT TRUNCATE ON favorites.favorites TO {}").format(sql.Identifier(WORKER)))
    assert str(FAVORITES) in only(found(database, job(GUESTS)), "too-many-privileges").why


@pytest.mark.parametrize(
    ("apart", "severity"),
    [
        (timedelta(minutes=6), Severity.ERROR),
        (timedelta(minutes=-6), Severity.ERROR),
        (timedelta(minutes=1), Severity.WARNING),
    ],
)
def test_clocks_that_are_apart_are_found(database: Database, apart: timedelta, severity: Severity) -> None:
    finding = only(found(database, clock=FastClock(apart)), "clocks-apart")
    assert finding.severity is severity


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"])
def test_a_timeout_of_the_role_is_noted(database: Database, admin: Admin, setting: LiteralString) -> None:
    admin.execute(
        sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = '5s'").format(
            sql.Identifier(WORKER), sql.Identifier(database.name), sql.Identifier(setting)
        )
    )
    finding = only(found(database), "timeout")
    assert (finding.severity, finding.object) == (Severity.NOTE, f"{setting} = 5000 ms")


def test_a_pooler_is_noted(database: Database) -> None:
    with transaction_pooler(database, 2) as pooler:
        findings = inspect(job(ACTIVITY), pooler.dsn, SystemClock(), older_than=NOW)
    assert only(list(findings), "pooler").severity is Severity.NOTE


def test_an_old_transaction_is_found_with_who_has_it(database: Database, admin: Admin) -> None:
    admin.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(sql.Identifier(WORKER)))
    try:
        with database.connect() as reader, reader.transaction():
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM favorites.favorites")
            finding = only(found(database, job(GUESTS)), "old-snapshot")
            assert finding.severity is Severity.WARNING
            assert f"process {reader.info.backend_pid} " in finding.object
        assert found(database, job(GUESTS)) == []
    finally:
        admin.execute(sql.SQL("REVOKE pg_read_all_stats FROM {}").format(sql.Identifier(WORKER)))


def test_a_role_that_does_not_see_the_transactions_of_others_is_told_so(database: Database, admin: Admin) -> None:
    def told() -> list[Finding]:
        findings = inspect(job(GUESTS), database.worker_dsn, SystemClock())
        return [finding for finding in findings if finding.code == "unseen-transactions"]

    (finding,) = told()
    assert (finding.severity, finding.object) == (Severity.NOTE, f"role {WORKER}")
    admin.execute(finding.fix.encode())
    try:
        assert told() == []
    finally:
        admin.execute(finding.fix.replace("GRANT", "REVOKE").replace(" TO ", " FROM ").encode())


def test_what_only_reading_rows_shows_is_found_beside_a_cascade(database: Database, admin: Admin) -> None:
    admin.execute(
        "CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions ON DELETE CASCADE)"
    )
    admin.execute("DROP INDEX user_activity.ix_sessions_ended_at")
    rows.allow_any_dates(admin)
    rows.session(admin, None)

    codes = {finding.code for finding in found(database)}

    assert codes == {"undeclared-cascade", "no-claim-index", "no-expiry"}


def test_what_cannot_be_looked_at_is_said_beside_what_is_found(database: Database, admin: Admin) -> None:
    admin.execute(sql.SQL("REVOKE UPDATE (id) ON user_activity.sessions FROM {}").format(sql.Identifier(WORKER)))
    rows.allow_any_dates(admin)
    rows.session(admin, None)

    findings = found(database)

    assert {finding.code for finding in findings} == {"missing-privilege", "not-looked-at", "no-expiry"}
    assert "whether an index serves the claims" in only(findings, "not-looked-at").why


def test_one_error_hides_no_other_one(database: Database, admin: Admin) -> None:
    admin.execute("ALTER TABLE user_activity.sessions ENABLE ROW LEVEL SECURITY")
    admin.execute(
        "CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions ON DELETE CASCADE)"
    )
    on_delete(admin, SESSIONS, "RETURN NULL")

    findings = found(database)

    assert {finding.code for finding in findings} >= {"refused", "undeclared-cascade", "trigger"}
    assert only(findings, "refused").fix == f'ALTER ROLE "{WORKER}" BYPASSRLS;'


def test_a_rule_is_named_by_the_fix_and_one_that_is_dropped_is_none(database: Database, admin: Admin) -> None:
    admin.execute("CREATE RULE no_del AS ON DELETE TO favorites.favorites DO INSTEAD NOTHING")
    (drop,) = admin.execute(only(found(database, job(GUESTS)), "refused").fix.encode()).fetchall()
    assert drop == ("DROP RULE no_del ON favorites.favorites;",)

    admin.execute(str(drop[0]).encode())

    assert found(database, job(GUESTS)) == []


def test_a_child_by_inheritance_is_named_by_the_fix_and_one_that_is_gone_is_none(
    database: Database, admin: Admin
) -> None:
    admin.execute("CREATE TABLE public.more () INHERITS (favorites.favorites)")
    (alter,) = admin.execute(only(found(database, job(GUESTS)), "refused").fix.encode()).fetchall()
    admin.execute(str(alter[0]).encode())
    assert found(database, job(GUESTS)) == []


def test_a_vacuum_while_a_run_is_on_is_no_change_of_a_table(database: Database, admin: Admin) -> None:
    admin.execute("CREATE RULE no_del AS ON DELETE TO favorites.favorites DO INSTEAD NOTHING")
    admin.execute("DROP RULE no_del ON favorites.favorites")
    for _ in range(4):
        rows.favorite(admin)

    def vacuum(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            admin.execute("VACUUM favorites.favorites")

    assert run(database, job(GUESTS, batch_size=2), on=vacuum).report.deleted == {str(FAVORITES): 4}


def test_rows_that_expired_before_all_time_never_do(database: Database, admin: Admin) -> None:
    rows.favorite(admin, "-infinity")
    assert only(found(database, job(GUESTS)), "no-expiry").severity is Severity.WARNING


def test_tables_without_statistics_and_those_in_parts_are_not_taken_for_empty(database: Database, admin: Admin) -> None:
    admin.execute("CREATE TABLE public.n (n int, favorite uuid REFERENCES favorites.favorites) PARTITION BY RANGE (n)")
    admin.execute("CREATE TABLE public.n_1 PARTITION OF public.n DEFAULT")
    admin.execute("ALTER TABLE public.n_1 SET (autovacuum_enabled = off)")
    admin.execute("INSERT INTO public.n (n) SELECT generate_series(1, 60000)")

    finding = only(found(database, job(GUESTS)), "unindexed-reference")

    assert (finding.severity, finding.object) == (Severity.ERROR, "public.n (favorite)")


def test_an_index_by_expiry_alone_is_no_error(database: Database, admin: Admin) -> None:
    admin.execute("DROP INDEX favorites.ix_favorites_guest_updated_at")
    admin.execute("CREATE INDEX ON favorites.favorites (updated_at) WHERE user_id IS NULL")
    for _ in range(10):
        rows.favorite(admin)
    assert found(database, job(GUESTS)) == []


def test_a_slot_that_nobody_uses_is_found_since_it_keeps_wal(database: Database, admin: Admin) -> None:
    admin.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
    finding = only(found(database, job(GUESTS)), "idle-slot")
    assert (finding.severity, finding.object) == (Severity.WARNING, "replication slot forgotten, not in use")

    admin.execute(finding.fix.encode())

    assert found(database, job(GUESTS)) == []


def test_a_server_older_than_what_is_tested_is_found(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "OLDEST_SERVER", (database.server.version + 1) * 10_000)
    finding = only(found(database, job(GUESTS)), "old-server")
    assert (finding.severity, f"PostgreSQL {database.server.version}:" in finding.why) == (Severity.WARNING, True)


@pytest.mark.parametrize("lag", [None, timedelta(seconds=5)])
def test_a_role_that_cannot_see_replicas_is_found_where_a_run_is_to_wait_for_them(
    database: Database, admin: Admin, lag: timedelta | None
) -> None:
    this = job(GUESTS, pace=Pace(replica_lag=lag))
    if lag is None:
        assert found(database, this) == []
        return
    finding = only(found(database, this), "unseen-replicas")
    assert finding.severity is Severity.WARNING  # an error as soon as there is one
    admin.execute(finding.fix.encode())
    try:
        assert found(database, this) == []
    finally:
        admin.execute(finding.fix.replace("GRANT", "REVOKE").replace(" TO ", " FROM ").encode())


def test_clocks_that_are_apart_are_no_error_where_the_brake_is_overridden(database: Database) -> None:
    this = job(GUESTS, safety=Safety(overridden=frozenset({Brake.CLOCKS_APART})))
    finding = only(found(database, this, FastClock(timedelta(hours=1))), "clocks-apart")
    assert finding.severity is Severity.WARNING


def test_an_expiry_that_is_not_set_is_found(database: Database, admin: Admin) -> None:
    admin.execute("ALTER TABLE favorites.favorites ALTER updated_at DROP NOT NULL")
    admin.execute("UPDATE favorites.favorites SET updated_at = NULL WHERE id = %s", [rows.favorite(admin)])
    finding = only(found(database, job(GUESTS)), "no-expiry")
    assert (finding.severity, finding.object) == (Severity.WARNING, f"{FAVORITES}.updated_at")
    assert " 1 rows" in finding.why


SHAPES: dict[str, tuple[LiteralString, str]] = {
    "missing table": ("DROP TABLE user_activity.action_events CASCADE", "no such table"),
    "missing column": ("ALTER TABLE user_activity.sessions DROP COLUMN status CASCADE", "has no column status"),
    "wrong type": ("ALTER TABLE user_activity.sessions ALTER ended_at TYPE timestamp", "only timestamp with time zone"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_that_a_run_would_refuse_is_an_error(database: Database, admin: Admin, shape: str) -> None:
    change, why = SHAPES[shape]
    admin.execute(change)
    finding = only(found(database), "refused")
    assert finding.severity is Severity.ERROR
    assert why in finding.why


def test_a_check_deletes_nothing_and_a_run_after_it_does_what_it_would_have_done(
    database: Database, admin: Admin
) -> None:
    favorite, kept = rows.favorite(admin), rows.favorite(admin, "2100-01-01")
    found(database, job(GUESTS))
    assert rows.ids(admin, FAVORITES) == {favorite, kept}
    run(database, job(GUESTS))
    assert rows.ids(admin, FAVORITES) == {kept}
