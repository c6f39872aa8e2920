"""Tables of every shape: which are refused, and that exactly the expired rows of the others go."""

from __future__ import annotations

from dataclasses import replace
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.policy import Child, Condition, Equals, IsNull, Policy, Table
from pgretention.report import BatchDone, Fact, Outcome, RunReport, RunStarted
from pgretention.schema import grants
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.gates import one
from tests.support.rows import SESSIONS
from tests.support.runs import ACTIVITY, YEAR, job, run, unwatched_run

Admin = Connection[TupleRow]

ORDERS = Table("shop", "orders")
LINES = Table("shop", "lines")
ONLY_DONE: tuple[Condition, ...] = (Equals("status", "Done"),)
POLICY = Policy("orders", ORDERS, "id", "ended_at", ONLY_DONE, YEAR, (Child(LINES, "order_id"),))


def clean(database: Database, admin: Admin, policy: Policy) -> RunReport:
    admin.execute(grants([policy], WORKER).encode())
    return run(database, job(policy)).report


def left(admin: Admin, table: LiteralString, column: LiteralString = "id") -> set[object]:
    return {row[0] for row in admin.execute(f"SELECT {column} FROM {table}")}


KEYS: dict[LiteralString, tuple[object, object]] = {
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "bigint": (-(2**63), 2**63 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "text": ("NULL, \"quoted\\\", {in braces} and 'more'", ""),
}


@pytest.mark.req("A-01")
@pytest.mark.parametrize("key_type", KEYS)
def test_every_type_of_key_finds_its_rows_and_their_children(
    database: Database, admin: Admin, key_type: LiteralString
) -> None:
    admin.execute(f"""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id {key_type} PRIMARY KEY, status text NOT NULL, ended_at timestamptz);
        CREATE TABLE shop.lines (order_id {key_type} NOT NULL REFERENCES shop.orders);
    """)
    gone, kept = KEYS[key_type]
    for key, status in (gone, "Done"), (kept, "Open"):
        admin.execute("INSERT INTO shop.orders VALUES (%s, %s, '2020-01-01')", [key, status])
        admin.execute("INSERT INTO shop.lines VALUES (%s), (%s)", [key, key])

    report = clean(database, admin, POLICY)

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == {"shop.lines": 2, "shop.orders": 1}
    assert {str(key) for key in left(admin, "shop.orders")} == {str(kept)}
    assert {str(key) for key in left(admin, "shop.lines", "order_id")} == {str(kept)}


@pytest.mark.req("A-01", "A-10")
@pytest.mark.parametrize("key_type", ["bigint", "text"])
def test_keys_that_sort_in_their_own_way_are_all_found_over_many_batches(
    database: Database, admin: Admin, key_type: LiteralString
) -> None:
    admin.execute(f"""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id {key_type} PRIMARY KEY, status text NOT NULL, ended_at timestamptz);
        INSERT INTO shop.orders SELECT (n - 10)::{key_type}, 'Done', '2020-01-01' FROM generate_series(1, 25) AS n;
    """)
    policy = replace(POLICY, children=())
    admin.execute(grants([policy], WORKER).encode())

    ran = run(database, job(policy, batch_size=4))

    assert ran.roots_per_batch == [4, 4, 4, 4, 4, 4, 1]
    assert left(admin, "shop.orders") == set()


@pytest.mark.req("A-01")
def test_awkward_names_and_values_are_taken_as_they_are(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE SCHEMA "My ""Shop"" here";
        CREATE TABLE "My ""Shop"" here"."Orders; DROP TABLE x" (
            "the Key" text PRIMARY KEY, "Ended At" timestamptz, "select" text, "Who's" uuid
        );
        CREATE TABLE "My ""Shop"" here"."Позиции {0}" (
            "order" text NOT NULL REFERENCES "My ""Shop"" here"."Orders; DROP TABLE x" ("the Key")
        );
    """)
    orders, lines = Table('My "Shop" here', "Orders; DROP TABLE x"), Table('My "Shop" here', "Позиции {0}")
    value = 'it\'s \\ "done" {0} $1 :x'
    policy = Policy(
        name="awkward",
        root=orders,
        key="the Key",
        expiry="Ended At",
        guard=(Equals("select", value), IsNull("Who's")),
        retention=YEAR,
        children=(Child(lines, "order"),),
        lock="it's a \\ lock {0} %s",
    )
    insert = 'INSERT INTO "My ""Shop"" here"."Orders; DROP TABLE x" VALUES (%s, %s, %s, %s)'
    admin.execute(insert, ["gone", rows.OLD, value, None])
    admin.execute(insert, ["kept", rows.OLD, value.replace("\\", ""), None])
    admin.execute(insert, ["kept too", rows.OLD, value, "00000000-0000-0000-0000-000000000000"])
    admin.execute("""
        INSERT INTO "My ""Shop"" here"."Позиции {0}" SELECT "the Key" FROM "My ""Shop"" here"."Orders; DROP TABLE x"
    """)

    report = clean(database, admin, policy)

    assert report.outcome is Outcome.COMPLETED, report.error
    assert report.deleted == {str(lines): 1, str(orders): 1}
    assert rows.ids(admin, orders, "the Key") == rows.ids(admin, lines, "order") == {"kept", "kept too"}


SHAPES: dict[str, tuple[LiteralString, str]] = {
    "view": ("CREATE VIEW shop.orders AS TABLE shop.base", "shop.orders: is a view"),
    "materialized view": (
        "CREATE MATERIALIZED VIEW shop.orders AS TABLE shop.base",
        "shop.orders: is a materialized view",
    ),
    "partitioned": (
        "CREATE TABLE shop.orders (LIKE shop.base) PARTITION BY RANGE (ended_at)",
        "shop.orders: is a partitioned table",
    ),
    "inherited": (
        "CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL); CREATE TABLE shop.more () INHERITS (shop.orders)",
        "shop.orders: is a table that others inherit from",
    ),
    "foreign": (
        """
        CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
        CREATE FOREIGN TABLE shop.orders (id uuid, status text, ended_at timestamptz)
        SERVER files OPTIONS (filename '/dev/null')
        """,
        "shop.orders: is a foreign table",
    ),
    "sequence": ("CREATE SEQUENCE shop.orders", "shop.orders: is a relation of kind S"),
    "missing": ("", "shop.orders: no such table"),
    "missing column": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text)",
        "shop.orders: has no column ended_at",
    ),
    "dropped column": (
        "CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL); ALTER TABLE shop.orders DROP COLUMN ended_at",
        "shop.orders: has no column ended_at",
    ),
    "MixedCase column": (
        'CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, "Ended_At" timestamptz)',
        "shop.orders: has no column ended_at",
    ),
    "MixedCase table": ('CREATE TABLE shop."Orders" (LIKE shop.base INCLUDING ALL)', "shop.orders: no such table"),
    "another schema": ("CREATE TABLE public.orders (LIKE shop.base INCLUDING ALL)", "shop.orders: no such table"),
    "timestamp without zone": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at timestamp)",
        "shop.orders.ended_at: is of type timestamp without time zone",
    ),
    "date": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at date)",
        "shop.orders.ended_at: is of type date",
    ),
    "milliseconds": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at bigint)",
        "shop.orders.ended_at: is of type bigint",
    ),
    "text": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at text)",
        "shop.orders.ended_at: is of type text",
    ),
    "time": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at timetz)",
        "shop.orders.ended_at: is of type time with time zone",
    ),
    "array": (
        "CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at timestamptz[])",
        "shop.orders.ended_at: is of type timestamp with time zone[]",
    ),
    "key of another type": (
        "CREATE TABLE shop.orders (id numeric PRIMARY KEY, status text, ended_at timestamptz)",
        "shop.orders.id: is of type numeric",
    ),
    "key of a domain": (
        """
        CREATE DOMAIN shop.number AS uuid;
        CREATE TABLE shop.orders (id shop.number PRIMARY KEY, status text, ended_at timestamptz)
        """,
        "shop.orders.id: is of type shop.number",
    ),
    "key not unique": (
        """
        CREATE TABLE shop.orders (id uuid NOT NULL, status text, ended_at timestamptz);
        CREATE INDEX ON shop.orders (id)
        """,
        "shop.orders.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "key unique but NULL": (
        "CREATE TABLE shop.orders (id uuid UNIQUE, status text, ended_at timestamptz)",
        "shop.orders.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "key unique with another column only": (
        "CREATE TABLE shop.orders (id uuid, status text, ended_at timestamptz, PRIMARY KEY (id, status))",
        "shop.orders.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "key unique for some rows": (
        """
        CREATE TABLE shop.orders (id uuid NOT NULL, status text, ended_at timestamptz);
        CREATE UNIQUE INDEX ON shop.orders (id) WHERE status = 'Open'
        """,
        "shop.orders.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "key unique at commit": (
        """
        CREATE TABLE shop.orders (
        id uuid NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED, status text, ended_at timestamptz)
        """,
        "shop.orders.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "expression unique": (
        """
        CREATE TABLE shop.orders (id text NOT NULL, status text, ended_at timestamptz);
        CREATE UNIQUE INDEX ON shop.orders (lower(id))
        """,
        "shop.orders.id: is neither primary key nor NOT NULL and unique on its own",
    ),
    "rules": (
        """
        CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL);
        CREATE RULE keep AS ON DELETE TO shop.orders DO INSTEAD NOTHING
        """,
        "shop.orders: is a ",
    ),
    "row-level security": (
        "CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL); ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY",
        "shop.orders: row-level security hides rows of it from this role",
    ),
    "foreign keys switched off": (
        """
        CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL);
        CREATE TABLE shop.bills (order_id uuid REFERENCES shop.orders);
        ALTER TABLE shop.orders DISABLE TRIGGER ALL
        """,
        "shop.orders: its foreign keys are switched off",
    ),
    "cascade to itself": (
        "CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL, after uuid REFERENCES shop.orders ON DELETE CASCADE)",
        "shop.orders: its foreign key orders_after_fkey to shop.orders is ON DELETE CASCADE",
    ),
    "cascade to another table": (
        """
        CREATE TABLE shop.orders (LIKE shop.base INCLUDING ALL);
        CREATE TABLE shop.bills (order_id uuid REFERENCES shop.orders ON DELETE CASCADE)
        """,
        "shop.bills: its foreign key bills_order_id_fkey to shop.orders is ON DELETE CASCADE",
    ),
}


@pytest.mark.req("A-04", "A-07")
def test_a_root_that_is_not_what_the_policy_says_is_refused(database: Database, admin: Admin) -> None:
    said = {}
    for shape, (statement, reason) in SHAPES.items():
        admin.execute("DROP SCHEMA IF EXISTS shop CASCADE; DROP TABLE IF EXISTS public.orders; CREATE SCHEMA shop")
        admin.execute("CREATE TABLE shop.base (id uuid PRIMARY KEY, status text, ended_at timestamptz)")
        admin.execute(statement)
        report = run(database, job(replace(POLICY, children=()))).report
        assert (report.outcome, report.cutoff, report.has_more) == (Outcome.REFUSED, None, False), shape
        assert report.error is not None
        said[shape] = report.error.message[: len(reason)]

    assert said == {shape: reason for shape, (_, reason) in SHAPES.items()}


CHILDREN: dict[str, tuple[LiteralString, str]] = {
    "missing": ("", "shop.lines: no such table"),
    "missing column": ("CREATE TABLE shop.lines (orders_id uuid)", "shop.lines: has no column order_id"),
    "another type": (
        "CREATE TABLE shop.lines (order_id text)",
        "shop.lines.order_id: is of type text, but shop.orders.id of uuid",
    ),
    "view": ("CREATE VIEW shop.lines AS SELECT id AS order_id FROM shop.orders", "shop.lines: is a view"),
    "cascade by another column": (
        """
        CREATE TABLE shop.lines (order_id uuid REFERENCES shop.orders ON DELETE CASCADE,
                                 copied_from uuid REFERENCES shop.orders ON DELETE CASCADE)
        """,
        "shop.lines: its foreign key lines_copied_from_fkey to shop.orders is ON DELETE CASCADE",
    ),
    "cascade from a child": (
        """
        CREATE TABLE shop.lines (id uuid PRIMARY KEY, order_id uuid REFERENCES shop.orders);
        CREATE TABLE shop.bills (line_id uuid REFERENCES shop.lines ON DELETE CASCADE)
        """,
        "shop.bills: its foreign key bills_line_id_fkey to shop.lines is ON DELETE CASCADE",
    ),
    "a foreign key to somewhere else": (
        """
        CREATE TABLE shop.customers (id uuid PRIMARY KEY);
        CREATE TABLE shop.lines (order_id uuid REFERENCES shop.customers)
        """,
        "shop.lines.order_id: its foreign key lines_order_id_fkey refers to shop.customers (id), not to",
    ),
    "wrong order": (
        """
        CREATE TABLE shop.lines (id uuid PRIMARY KEY, order_id uuid REFERENCES shop.orders);
        CREATE TABLE shop.parts (order_id uuid, line_id uuid REFERENCES shop.lines ON DELETE RESTRICT)
        """,
        "shop.parts: must be deleted before shop.lines",
    ),
}


@pytest.mark.req("A-02")
def test_a_child_that_is_not_what_the_policy_says_is_refused(database: Database, admin: Admin) -> None:
    said = {}
    for shape, (statement, reason) in CHILDREN.items():
        admin.execute("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
        admin.execute("CREATE TABLE shop.orders (id uuid PRIMARY KEY, status text, ended_at timestamptz)")
        admin.execute("CREATE TABLE shop.elsewhere (order_id uuid)")
        admin.execute(statement)
        last = Table("shop", "parts" if shape == "wrong order" else "elsewhere")
        report = run(database, job(replace(POLICY, children=(*POLICY.children, Child(last, "order_id"))))).report
        assert report.outcome is Outcome.REFUSED, shape
        assert report.error is not None
        said[shape] = report.error.message[: len(reason)]

    assert said == {shape: reason for shape, (_, reason) in CHILDREN.items()}


@pytest.mark.req("A-01", "A-18")
def test_a_declared_child_may_cascade_and_is_counted_all_the_same(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id integer PRIMARY KEY, status text NOT NULL, ended_at timestamptz);
        CREATE TABLE shop.lines (order_id integer REFERENCES shop.orders ON DELETE CASCADE);
        INSERT INTO shop.orders VALUES (1, 'Done', '2020-01-01'), (2, 'Open', '2020-01-01');
        INSERT INTO shop.lines VALUES (1), (1), (2);
    """)

    assert clean(database, admin, POLICY).deleted == {"shop.lines": 2, "shop.orders": 1}
    assert left(admin, "shop.lines", "order_id") == {2}


@pytest.mark.req("A-04")
@pytest.mark.parametrize("exact", ["text", "varchar", "varchar(9)", "shop.state"])
def test_a_guard_takes_texts_and_enums_and_holds_for_exactly_its_value(
    database: Database, admin: Admin, exact: LiteralString
) -> None:
    admin.execute(f"""
        CREATE SCHEMA shop;
        CREATE TYPE shop.state AS ENUM ('Done', 'done', 'Done ');
        CREATE TABLE shop.orders (id integer PRIMARY KEY, status {exact}, ended_at timestamptz);
        INSERT INTO shop.orders SELECT n, (ARRAY['Done', 'done', 'Done ', NULL])[n]::{exact}, '2020-01-01'
          FROM generate_series(1, 4) AS n;
    """)

    assert clean(database, admin, replace(POLICY, children=())).outcome is Outcome.COMPLETED
    assert left(admin, "shop.orders") == {2, 3, 4}


@pytest.mark.req("A-18")
def test_children_without_a_foreign_key_go_with_their_root_and_no_others(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id integer PRIMARY KEY, status text NOT NULL, ended_at timestamptz);
        CREATE TABLE shop.lines (order_id integer);
        INSERT INTO shop.orders VALUES (1, 'Done', '2020-01-01'), (2, 'Open', '2020-01-01');
        INSERT INTO shop.lines VALUES (1), (1), (2), (NULL);
    """)

    assert clean(database, admin, POLICY).deleted == {"shop.lines": 2, "shop.orders": 1}
    assert left(admin, "shop.lines", "order_id") == {2, None}


@pytest.mark.req("A-04")
@pytest.mark.parametrize("loose", ["citext", "char(8)", 'text COLLATE "any case"'])
def test_a_guard_is_refused_on_a_column_that_equals_more_than_its_text(
    database: Database, admin: Admin, loose: LiteralString
) -> None:
    """Such a column holds DONE, or done and blanks, and would be found by a guard that says Done."""
    admin.execute("CREATE EXTENSION citext")
    admin.execute(ANY_CASE)
    admin.execute(f"""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id integer PRIMARY KEY, status {loose} NOT NULL, ended_at timestamptz);
        INSERT INTO shop.orders VALUES (1, 'Done', '2020-01-01'), (2, 'DONE', '2020-01-01');
    """)

    report = clean(database, admin, replace(POLICY, children=()))

    assert report.outcome is Outcome.REFUSED
    assert report.error is not None
    assert report.error.message.startswith("shop.orders.status: is of type ")
    assert left(admin, "shop.orders") == {1, 2}


@pytest.mark.req("A-18")
def test_a_child_is_refused_whose_column_equals_more_than_the_key_of_its_root(database: Database, admin: Admin) -> None:
    """The lines of order A, which is kept, would go with order a."""
    admin.execute(ANY_CASE)
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id text PRIMARY KEY, status text NOT NULL, ended_at timestamptz);
        CREATE TABLE shop.lines (order_id text COLLATE "any case" NOT NULL);
        INSERT INTO shop.orders VALUES ('a', 'Done', '2020-01-01'), ('A', 'Open', '2020-01-01');
        INSERT INTO shop.lines VALUES ('a'), ('A');
    """)

    report = clean(database, admin, POLICY)

    assert report.outcome is Outcome.REFUSED
    assert report.error is not None
    assert report.error.message.startswith("shop.lines.order_id: is of type text with a nondeterministic collation")
    assert left(admin, "shop.lines", "order_id") == {"a", "A"}


# Only ICU has collations that ignore case, and not every server has ICU; what matters here is what the catalog says.
ANY_CASE: LiteralString = """
    CREATE COLLATION "any case" (provider = libc, locale = 'C');
    UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'any case';
"""


@pytest.mark.req("A-04", "A-18")
def test_a_table_that_begins_to_inherit_during_the_run_loses_nothing(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (id integer PRIMARY KEY, status text NOT NULL, ended_at timestamptz);
        CREATE TABLE shop.lines (order_id integer);
        INSERT INTO shop.orders VALUES (1, 'Done', '2020-01-02');
        CREATE TABLE shop.archive (LIKE shop.orders);
        INSERT INTO shop.archive VALUES (2, 'Done', '2020-01-01');
        INSERT INTO shop.lines VALUES (1), (2);
    """)
    admin.execute(grants([POLICY], WORKER).encode())

    def inherit(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            admin.execute("ALTER TABLE shop.archive INHERIT shop.orders")

    report = run(database, job(POLICY, batch_size=1), on=inherit).report

    assert report.outcome is Outcome.REFUSED
    assert left(admin, "shop.orders") == {1, 2}
    assert left(admin, "shop.lines", "order_id") == {1, 2}


@pytest.mark.req("A-04")
def test_a_young_session_is_not_deleted_through_a_reference_to_an_expired_one(database: Database, admin: Admin) -> None:
    """ON DELETE CASCADE takes rows that no policy names: such a table has to be refused."""
    admin.execute("""
        ALTER TABLE user_activity.sessions
          ADD COLUMN continues uuid REFERENCES user_activity.sessions ON DELETE CASCADE
    """)
    expired = rows.session(admin)
    young = rows.active_session(admin, continues=expired)

    unwatched_run(database.worker_dsn, job(ACTIVITY))

    assert young in rows.ids(admin, SESSIONS)


@pytest.mark.req("A-04")
def test_rows_of_a_table_that_no_policy_names_are_not_deleted(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE TABLE user_activity.invoices (
            session_id uuid REFERENCES user_activity.sessions ON DELETE CASCADE, amount numeric
        )
    """)
    session = rows.session(admin)
    admin.execute("INSERT INTO user_activity.invoices VALUES (%s, 100)", [session])

    run(database, job(ACTIVITY))

    assert one(admin, "SELECT count(*) FROM user_activity.invoices") == 1


CHANGES: dict[str, LiteralString] = {
    "a cascade appears": """
        CREATE TABLE user_activity.invoices (
            session_id uuid REFERENCES user_activity.sessions ON DELETE CASCADE
        ); INSERT INTO user_activity.invoices SELECT id FROM user_activity.sessions
    """,
    "a child is replaced": """
        ALTER TABLE user_activity.action_events RENAME TO old_events;
        CREATE TABLE user_activity.action_events (LIKE user_activity.old_events);
        GRANT ALL ON user_activity.action_events TO PUBLIC
    """,
    "the expiry changes its type": "ALTER TABLE user_activity.sessions ALTER ended_at TYPE timestamp",
    "the root is replaced": """
        ALTER TABLE user_activity.sessions RENAME TO old_sessions;
        CREATE TABLE user_activity.sessions (LIKE user_activity.old_sessions) PARTITION BY RANGE (id);
        GRANT ALL ON user_activity.sessions TO PUBLIC
    """,
    "a trigger appears": """
        CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
        CREATE TRIGGER t BEFORE DELETE ON user_activity.sessions FOR EACH ROW EXECUTE FUNCTION public.f()
    """,
    "foreign keys are switched off": "ALTER TABLE user_activity.sessions DISABLE TRIGGER ALL",
}


@pytest.mark.req("A-04", "A-12", "A-18")
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_changed_between_two_batches_ends_the_run_before_the_next_one(
    database: Database, admin: Admin, change: str
) -> None:
    for day in (1, 2, 3):
        rows.event(admin, rows.session(admin, f"2020-01-0{day}"))

    def alter(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            admin.execute(CHANGES[change])

    report = unwatched_run(database.worker_dsn, job(ACTIVITY, batch_size=1), on=alter).report

    assert (report.outcome, report.batches) == (Outcome.REFUSED, 1)
    assert report.deleted[str(SESSIONS)] == 1
    assert report.error is not None
    assert "definition of a table changed" in report.error.message


@pytest.mark.req("A-18")
def test_foreign_keys_that_a_session_setting_keeps_from_working_are_refused(database: Database, admin: Admin) -> None:
    session = rows.session(admin)
    admin.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET session_replication_role = replica', "
        "current_database()); END $$"
    )

    assert unwatched_run(database.worker_dsn, job(ACTIVITY)).report.outcome is Outcome.REFUSED
    assert session in rows.ids(admin, SESSIONS)


@pytest.mark.req("A-18")
def test_a_child_whose_foreign_key_means_another_column_is_refused(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (
            id integer PRIMARY KEY, number integer NOT NULL UNIQUE, status text NOT NULL, ended_at timestamptz
        );
        CREATE TABLE shop.lines (order_id integer REFERENCES shop.orders (number));
        INSERT INTO shop.orders VALUES (1, 101, 'Done', '2020-01-01'), (101, 1, 'Open', NULL);
        INSERT INTO shop.lines VALUES (1);
    """)

    assert clean(database, admin, POLICY).outcome is Outcome.REFUSED
    assert left(admin, "shop.lines", "order_id") == {1}


@pytest.mark.req("A-01", "A-10")
def test_columns_may_have_the_names_that_the_statements_use_for_their_own(database: Database, admin: Admin) -> None:
    admin.execute("""
        CREATE SCHEMA shop;
        CREATE TABLE shop.orders (address integer PRIMARY KEY, status text NOT NULL, key timestamptz);
        INSERT INTO shop.orders SELECT n, 'Done', '2020-01-01' FROM generate_series(1, 10) AS n;
    """)
    policy = Policy("orders", ORDERS, "address", "key", ONLY_DONE, YEAR)
    admin.execute(grants([policy], WORKER).encode())

    assert run(database, job(policy, batch_size=3)).roots_per_batch == [3, 3, 3, 1]
