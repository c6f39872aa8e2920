"""The torture finds what it is there to find: each of its checks is shown what it must not accept, and the contrary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.demo.binaries import Binaries
from pgretention.demo.server import ThrowawayServer
from pgretention.policy import Table
from tests.databases import Database, fresh_database, make_template
from tests.support import rows
from tests.support.command import commands_on
from tests.support.gates import until
from tests.support.rooms import left_in, room_of_its_own
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.torture import bystander, conduct, evidence, finale
from tests.torture.accounts import ACTIVITY, GUESTS, Ended, Run, counts_of, runs
from tests.torture.evidence import Deed
from tests.torture.stage import SETTINGS, furnish

Admin = Connection[TupleRow]

ROOT = Path(__file__).parents[2]
LOCK = "SELECT pg_advisory_lock(hashtextextended('job:scheduled:activity-retention', 0))"
SHARE = "SELECT pg_advisory_lock_shared(hashtextextended('job:scheduled:activity-retention/batches', 0))"
RUN_ID = "0d9f2c1e-0000-4000-8000-000000000000"
CONNECTION = f"pgretention/{ACTIVITY}/{RUN_ID[:8]}"
CUTOFF = datetime(2025, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[Binaries], ThrowawayServer]]:
    """A server that knows when its transactions ended, of each version once."""
    with ExitStack() as servers:

        @cache
        def start(binaries: Binaries) -> ThrowawayServer:
            server = servers.enter_context(ThrowawayServer.start(binaries, SETTINGS))
            make_template(server)
            return server

        yield start


@pytest.fixture
def database(binaries: Binaries, start: Callable[[Binaries], ThrowawayServer]) -> Iterator[Database]:
    """The stage of the torture, empty."""
    with fresh_database(start(binaries)) as database:
        furnish(database)
        yield database


@pytest.fixture
def worker(database: Database) -> Iterator[Admin]:
    """A connection of the worker's role that holds the lock and may now do what no run would do."""
    with _worker(database) as connection:
        connection.execute(LOCK)
        yield connection


def _worker(database: Database) -> Admin:
    return psycopg.connect(database.worker_dsn, application_name=CONNECTION, autocommit=True)


def delete(connection: Admin, session: UUID) -> None:
    """A session with its children, as a batch does it."""
    with connection.transaction():
        connection.execute("DELETE FROM user_activity.action_events WHERE session_id = %s", [session])
        connection.execute("DELETE FROM user_activity.property_object_views WHERE session_id = %s", [session])
        connection.execute("DELETE FROM user_activity.sessions WHERE id = %s", [session])


def found(admin: Admin) -> set[str]:
    """The names of the checks that find something."""
    return {finding.partition(":")[0] for finding in evidence.rows(admin, evidence.AT_THE_END)}


def family(admin: Admin) -> tuple[UUID, UUID, UUID]:
    """An expired session with a view and an event that refers to it."""
    session = rows.session(admin)
    view = rows.view(admin, session)
    return session, view, rows.event(admin, session, property_object_view_id=view)


def test_a_run_that_keeps_to_the_rules_is_accepted(database: Database, admin: Admin) -> None:
    before = bystander.place(database)
    family(admin)
    kept = rows.active_session(admin)
    rows.event(admin, kept, property_object_view_id=rows.view(admin, family(admin)[0]))
    rows.favorite(admin)
    said = []
    with commands_on(database) as command:
        for job in ACTIVITY, GUESTS:
            words = ("run", job, "--json")
            done = command(*words, "--log-format", "json", "--log-level", "debug")
            ended = Ended("1", words, 5000, done.code, (), done.stdout, done.stderr)
            said += runs(ended)
            assert list(conduct.manners(ended, runs(ended), command.hidden)) == []
            assert list(finale.drained(admin, ended)) == []
    assert found(admin) == set()
    assert rows.ids(admin, SESSIONS) == {kept}
    assert {name: [dict(deed.counts) for deed in done] for name, done in evidence.deeds(admin).items()} == {
        said[0].application_name: [{str(EVENTS): 2, str(VIEWS): 3, str(SESSIONS): 2}],
        said[1].application_name: [{str(FAVORITES): 1}],
    }
    assert list(conduct.sums(said, evidence.deeds(admin))) == []
    assert list(finale.leftovers(admin)) == []
    assert list(bystander.changes(before, bystander.look(database), crashes=0)) == []


@pytest.mark.parametrize(
    ("ended_at", "status"),
    [
        ("infinity", "Inactive"),
        ("-infinity", "Inactive"),
        (None, "Inactive"),
        (rows.OLD, "Active"),
        ("now", "Inactive"),
    ],
)
def test_a_session_that_was_not_expired_is_found(
    admin: Admin, worker: Admin, ended_at: str | None, status: str
) -> None:
    delete(worker, rows.session(admin, ended_at, status))
    assert found(admin) == {"deletable"}


def test_a_favorite_that_was_touched_or_signed_in_before_it_was_deleted_is_found(admin: Admin, worker: Admin) -> None:
    touched, owned = rows.favorite(admin), rows.favorite(admin)
    admin.execute("UPDATE favorites.favorites SET updated_at = now() WHERE id = %s", [touched])
    admin.execute("UPDATE favorites.favorites SET user_id = id WHERE id = %s", [owned])
    for key in touched, owned:
        worker.execute("DELETE FROM favorites.favorites WHERE id = %s", [key])
    findings = list(evidence.rows(admin, evidence.AT_THE_END))
    assert [finding.partition(": guard")[0] for finding in findings] == [
        f"deletable: {FAVORITES} {key}" for key in (touched, owned)
    ]


def test_what_the_application_deletes_itself_is_its_own_affair(admin: Admin) -> None:
    admin.execute("DELETE FROM favorites.favorites WHERE id = %s", [rows.favorite(admin, "now")])
    assert found(admin) == set()


@pytest.mark.parametrize("table", [SESSIONS, FAVORITES], ids=str)
def test_a_row_that_vanished_or_came_back_behind_the_witnesses_is_found(admin: Admin, table: Table) -> None:
    make = rows.session if table == SESSIONS else rows.favorite
    make(admin)
    admin.execute("SET session_replication_role = replica")  # in which triggers are silent
    admin.execute(f"DELETE FROM {table}".encode())
    assert found(admin) == {f"noted {table}"}
    make(admin)
    (gone, risen) = evidence.rows(admin, evidence.AT_THE_END)
    assert (gone.endswith("nobody saw it go"), risen.endswith("should not be")) == (True, True)


def test_half_a_batch_is_found(admin: Admin, worker: Admin) -> None:
    """A session that goes without its children takes foreign keys that are not there."""
    session, _, _ = family(admin)
    for table in EVENTS, VIEWS:
        admin.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table.name}_session_id_fkey".encode())
    worker.execute("DELETE FROM user_activity.sessions WHERE id = %s", [session])
    assert found(admin) == {"halves", "dangling"}


def test_a_session_and_its_children_in_two_transactions_are_found(admin: Admin, worker: Admin) -> None:
    session, _, _ = family(admin)
    worker.execute("DELETE FROM user_activity.action_events WHERE session_id = %s", [session])
    delete(worker, session)
    assert found(admin) == {"halves"}


@pytest.mark.parametrize("table", [EVENTS, VIEWS], ids=str)
def test_a_child_without_its_session_is_found(admin: Admin, worker: Admin, table: Table) -> None:
    session, _, _ = family(admin)
    worker.execute(f"DELETE FROM {table} WHERE session_id = %s".encode(), [session])
    assert found(admin) == {"halves"}


def test_a_reference_to_what_is_gone_is_found(admin: Admin, worker: Admin) -> None:
    session, view, _ = family(admin)
    rows.event(admin, rows.active_session(admin), property_object_view_id=view)
    admin.execute(f"ALTER TABLE {EVENTS} DROP CONSTRAINT action_events_property_object_view_id_fkey".encode())
    delete(worker, session)
    assert found(admin) == {"dangling"}


def test_a_reference_that_was_lost_although_both_ends_are_there_is_found(admin: Admin) -> None:
    _, _, event = family(admin)
    admin.execute("UPDATE user_activity.action_events SET property_object_view_id = NULL WHERE id = %s", [event])
    assert found(admin) == {"references"}


def test_two_deleters_of_sessions_at_once_are_found(database: Database, admin: Admin, worker: Admin) -> None:
    first, second = rows.session(admin), rows.session(admin)
    with _worker(database) as other, worker.transaction():
        other.execute("SET application_name = 'pgretention/another'")
        worker.execute("DELETE FROM user_activity.sessions WHERE id = %s", [first])
        other.execute("DELETE FROM user_activity.sessions WHERE id = %s", [second])
    assert found(admin) == {"unlocked", "overlaps"}


@pytest.mark.parametrize(("name", "findings"), [("pgretention/a", set()), ("pgretention/b", {"overlaps"})])
def test_two_connections_may_delete_at_once_in_the_same_run_alone(
    database: Database, admin: Admin, worker: Admin, name: str, findings: set[str]
) -> None:
    first, second, third = (rows.session(admin) for _ in range(3))
    worker.execute("SET application_name = 'pgretention/a'")
    with _worker(database) as other, worker.transaction():
        worker.execute("DELETE FROM user_activity.sessions WHERE id = %s", [first])
        other.execute(SHARE)
        other.execute("SELECT set_config('application_name', %s, false)", [name])
        delete(other, second)
        worker.execute("DELETE FROM user_activity.sessions WHERE id = %s", [third])
    assert found(admin) == findings


@pytest.mark.parametrize(("name", "findings"), [(CONNECTION, set()), (f"{CONNECTION[:-1]}1", {"overlaps"})])
def test_between_two_batches_of_a_connection_another_one_may_delete_in_the_same_run_alone(
    database: Database, admin: Admin, worker: Admin, name: str, findings: set[str]
) -> None:
    delete(worker, rows.session(admin))
    with _worker(database) as other:
        other.execute(SHARE)
        other.execute("SELECT set_config('application_name', %s, false)", [name])
        delete(other, rows.session(admin))
    delete(worker, rows.session(admin))
    assert found(admin) == findings


def test_two_runs_one_after_the_other_are_accepted_if_each_holds_the_lock(
    database: Database, admin: Admin, worker: Admin
) -> None:
    for _ in range(2):
        delete(worker, rows.session(admin))
    worker.execute("SELECT pg_advisory_unlock_all()")
    with _worker(database) as other:
        other.execute("SET application_name = 'pgretention/another'")
        other.execute(LOCK)
        for _ in range(2):
            delete(other, rows.session(admin))
    assert found(admin) == set()


def test_a_table_that_is_only_read_counts_as_used(database: Database, admin: Admin) -> None:
    before = bystander.place(database)
    admin.execute("SELECT FROM user_activity.property_object_view_stats")
    admin.execute("SELECT pg_stat_force_next_flush()")
    (change,) = bystander.changes(before, bystander.look(database), crashes=0)
    assert "was used" in change


def test_a_row_that_was_written_anew_unchanged_counts_as_another(database: Database, admin: Admin) -> None:
    before = bystander.place(database)
    admin.execute("UPDATE user_activity.property_object_view_stats SET views_count = views_count WHERE views_count = 7")
    assert "other versions" in next(bystander.changes(before, bystander.look(database), crashes=0))


def test_counters_at_zero_are_accepted_after_a_crash_only() -> None:
    before = bystander.Bystander(["row"], [3, 0, 1, 0, 0])
    after = replace(before, counters=[0, 0, 0, 0, 0])
    assert list(bystander.changes(before, after, crashes=1)) == []
    assert len(list(bystander.changes(before, after, crashes=0))) == 1


def test_what_is_left_open_at_the_end_is_found(admin: Admin, worker: Admin) -> None:
    worker.execute("SET application_name = 'somebody else'")
    assert list(finale.leftovers(admin)) == ["leftovers: an advisory lock"]


def test_a_last_run_that_left_something_is_found(admin: Admin) -> None:
    result = {"outcome": "completed", "backlog_after": 0, "has_more": False, "cutoff": CUTOFF.isoformat()}
    rows.session(admin)

    def drained(**changed: object) -> list[str]:
        return list(finale.drained(admin, ended(stdout=json.dumps(result | changed))))

    assert drained() == [f"drained: after the last run of {ACTIVITY} 1 expired rows are left"]
    assert "ended limit_reached" in drained(outcome="limit_reached")[0]
    assert "backlog 3" in drained(backlog_after=3)[0]
    assert "has no result" in next(finale.drained(admin, ended()))


def ended(code: int = 0, hit: tuple[str, ...] = (), stdout: str = "", stderr: str = "") -> Ended:
    return Ended("7", ("run", ACTIVITY, "--json"), 10, code, hit, stdout, stderr)


def deed(roots: str, events: int = 0, views: int = 0, newest: datetime = CUTOFF - timedelta(seconds=1)) -> Deed:
    """A transaction in which the sessions with these keys, one letter each, went."""
    counts = {str(EVENTS): events, str(VIEWS): views, str(SESSIONS): len(roots)}
    return Deed(counts_of(counts.items()), frozenset(roots), newest)


DONE = [deed("abc", 5), deed("de")]
COUNTS = {str(EVENTS): 5, str(VIEWS): 0, str(SESSIONS): 5}


def run_of(process: Ended) -> Run:
    """A run that says what DONE shows."""
    batches = [deed.counts for deed in DONE]
    return Run(process, ACTIVITY, RUN_ID, CUTOFF, batches, "completed", report=COUNTS, reported_batches=2)


def killed(workers: int) -> Run:
    """The same, killed before it told its end."""
    process = replace(ended(-9, ("SIGKILL",)), workers=workers)
    return Run(process, ACTIVITY, RUN_ID, CUTOFF, [deed.counts for deed in DONE])


def unsure(keys: str, workers: int = 1) -> Run:
    """The same, to which COMMIT was not answered for these keys."""
    run = run_of(replace(ended(1), workers=workers))
    run.outcome, run.kind, run.keys = "failed", "commit_unknown", tuple(keys)
    return run


def test_each_run_in_the_log_of_a_process_that_stays_is_read_with_its_end() -> None:
    """Typed out of the contract of the log (design section 6)."""
    began = {"event": "started", "job": ACTIVITY, "run_id": RUN_ID, "cutoff": CUTOFF.isoformat()}
    counts = {"deleted_action_events": 5, "deleted_property_object_views": 0, "deleted_sessions": 10}
    batch = {"event": "batch", "job": ACTIVITY, "run_id": RUN_ID, **counts}
    failed = {"event": "failed", "job": ACTIVITY, "run_id": RUN_ID, "outcome": "failed", "kind": "connection"}
    guest = {"job": GUESTS, "jobRunId": "2"}
    log = [
        {"event": "scheduled", "job": ACTIVITY},
        began,
        {"event": "job started", **guest, "cutoff": CUTOFF.isoformat()},
        batch,
        {"event": "batch deleted", **guest, "batchNo": 1, "rows": 3},
        failed | counts | {"batches": 1, "error": "lost", "batch_ids": ["a"]},
        {"event": "job completed", **guest, "outcome": "completed", "deletedTotal": 3, "batches": 1},
    ]
    first, second = runs(ended(stderr="\n".join(map(json.dumps, log))))
    assert (first.outcome, first.kind, first.keys, first.cutoff) == ("failed", "connection", ("a",), CUTOFF)
    assert first.report == {str(EVENTS): 5, str(VIEWS): 0, str(SESSIONS): 10}
    assert list(map(dict, first.batches)) == [{str(EVENTS): 5, str(SESSIONS): 10}]
    assert (second.job, second.outcome, second.reported_batches) == (GUESTS, "completed", 1)
    assert list(map(dict, second.batches)) == [second.counted] == [second.report] == [{str(FAVORITES): 3}]


def sums(done: list[Deed], run: Run | None = None) -> list[str]:
    return list(conduct.sums([run or run_of(ended())], {CONNECTION: done}))


def test_sums_that_agree_are_accepted_in_any_order() -> None:
    assert sums(DONE) == sums(DONE[::-1]) == []


@pytest.mark.parametrize(
    "done",
    [
        [deed("abc", 5), deed("d")],
        [deed("abc", 5), deed("def")],
        [deed("abc", 5), deed("de", views=1)],
        [deed("abc"), deed("de")],
        [deed("abc"), deed("de", 5)],
        [deed("ab", 5), deed("cde")],
        [deed("abcde", 5)],
        [deed("abc", 5), deed("d"), deed("e")],
        [*DONE, deed("fg")],
        [deed("abc", 5), deed("de", newest=CUTOFF)],
    ],
    ids=[
        "too few",
        "too many",
        "views",
        "no events",
        "events elsewhere",
        "a row elsewhere",
        "two batches in one",
        "half batches",
        "a batch more",
        "a young row",
    ],
)
def test_a_count_that_is_not_what_was_deleted_is_found(done: list[Deed]) -> None:
    assert len(sums(done)) == 1


def test_a_batch_that_is_too_large_is_found() -> None:
    run = run_of(ended())
    run.process = replace(run.process, batch_size=2)
    assert sums(DONE, run) == [f"sums: process 7, {CONNECTION}: deleted 3 rows in a batch of 2"]


def test_a_report_that_is_not_the_sum_of_its_batches_is_found() -> None:
    run = run_of(ended())
    run.report = COUNTS | {str(VIEWS): 1}
    assert len(sums(DONE, run)) == 1


def test_deletions_of_which_no_log_tells_are_found() -> None:
    assert list(conduct.sums([], {CONNECTION: DONE})) == [f"sums: {CONNECTION} deleted rows and said nothing of itself"]


@pytest.mark.parametrize("workers", [1, 2])
def test_of_a_killed_process_one_batch_of_each_connection_may_be_uncounted_and_no_more(workers: int) -> None:
    more = [deed(key) for key in "uvw"]
    assert sums(DONE, killed(workers)) == []
    assert sums(DONE + more[:workers], killed(workers)) == []
    assert len(sums(DONE + more[: workers + 1], killed(workers))) == 1


def test_of_a_killed_process_what_is_counted_must_be_gone_even_so() -> None:
    assert len(sums(DONE[1:], killed(2))) == 1
    assert len(sums([deed("abc", 4), *DONE[1:]], killed(2))) == 1


def test_of_a_run_that_told_its_end_before_its_process_was_killed_nothing_may_be_uncounted() -> None:
    run = killed(2)
    run.outcome = "refused"
    assert sums(DONE, run) == []
    assert len(sums([*DONE, deed("u")], run)) == 1


def test_of_a_commit_without_an_answer_all_rows_are_gone_or_none() -> None:
    assert sums(DONE, unsure("uv")) == []
    assert sums([*DONE, deed("uv", 2)], unsure("uv")) == []
    assert len(sums([*DONE, deed("u")], unsure("uv"))) == 1
    assert len(sums([*DONE, deed("uvw")], unsure("uv"))) == 1


def test_two_connections_may_both_get_no_answer_to_commit() -> None:
    assert sums([*DONE, deed("uv")], unsure("uvwx", workers=2)) == []
    assert sums([*DONE, deed("uv"), deed("wx")], unsure("uvwx", workers=2)) == []
    assert len(sums([*DONE, deed("uv"), deed("wx")], unsure("uvwx", workers=1))) == 1
    assert len(sums([*DONE, deed("uv"), deed("yz")], unsure("uvwx", workers=2))) == 1


def result(outcome: str = "completed", kind: str | None = None, message: str = "") -> str:
    """What `run --json` prints."""
    error = None if kind is None else {"kind": kind, "message": message, "keys": []}
    words = {"job": ACTIVITY, "run_id": RUN_ID, "outcome": outcome, "deleted": COUNTS, "batches": 2, "error": error}
    return json.dumps(words) + "\n"


def manners(process: Ended) -> list[str]:
    return list(conduct.manners(process, runs(process), ("nobody-may-read-this",)))


CHANGED = "the definition of a table changed while the run was on; look at the change, then run again"


@pytest.mark.parametrize(
    "process",
    [
        ended(stdout=result()),
        ended(stdout=result("skipped")),
        ended(1, stdout=result("failed", "connection")),
        ended(1, stdout=result("partial", "lock_timeout")),
        ended(3, stdout=result("refused", "refused", CHANGED)),
        ended(-9, ("SIGKILL",)),
        ended(-15, ("SIGTERM",)),
    ],
    ids=lambda process: f"{process.code}",
)
def test_an_end_that_is_promised_is_accepted(process: Ended) -> None:
    assert manners(process) == []


@pytest.mark.parametrize(
    ("process", "finding"),
    [
        (ended(1, stdout=result()), "exit code 1 after ['completed']"),
        (ended(0, stdout=result("failed", "connection")), "exit code 0 after ['failed']"),
        (ended(0, stdout=result("well done")), "exit code 0 after ['well done']"),
        (ended(1, stdout=result("failed", "foreign_key", "why")), "because of foreign_key: why"),
        (ended(1, stdout=result("failed", "internal", "why")), "because of internal: why"),
        (ended(0, stdout=result("completed", "connection")), "ended completed because of connection"),
        (ended(1, stdout=result("failed")), "ended failed because of None"),
        (ended(3, stdout=result("refused", "refused", "no such table")), "was refused: no such table"),
        (ended(0), "exit code 0 after []"),
        (ended(0, stdout=result() * 2), "2 lines on stdout"),
        (ended(-9), "exit code -9 after []"),
        (ended(-15, ("SIGTERM",), stdout=result()), "exit code -15 after ['completed']"),
        (ended(stdout=result(), stderr="Traceback (most recent call last):"), "a traceback"),
        (ended(stdout=result(), stderr='{"event": "nobody-may-read-this"}'), "shows something hidden"),
        (ended(stdout=result(), stderr="psycopg: a warning"), "wrote 'psycopg: a warning'"),
    ],
)
def test_an_end_that_nobody_promised_is_found(process: Ended, finding: str) -> None:
    assert any(finding in each for each in manners(process))


def test_what_the_application_should_not_have_met_is_found() -> None:
    assert list(conduct.complaints(["client 1 met 40P01"])) == ["application: client 1 met 40P01"]


@pytest.fixture
def room() -> Iterator[Path]:
    with room_of_its_own() as room:
        yield room


@contextmanager
def torture(*words: str) -> Generator[subprocess.Popen[str]]:
    """While inside, a torture that at the end is asked to end, should it still go on."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.torture", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def writers_in(room: Path) -> set[str]:
    """Command lines of the processes that have a file in the room open, as whatever the torture starts has."""
    return {_command(fd.parents[1]) for fd in Path("/proc").glob("[0-9]*/fd/*") if _leads_into(fd, room)}


def _leads_into(fd: Path, room: Path) -> bool:
    try:
        return str(fd.readlink()).startswith(f"{room}/")
    except OSError:  # ended meanwhile, or somebody else's
        return False


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "ended meanwhile"


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_torture_leaves_nothing(room: Path, which: signal.Signals) -> None:
    with torture("--minutes", "10", "--seed", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "torture for 10 minutes, seed 1\n"
        assert process.stdout.readline().startswith("PostgreSQL ")
        until(lambda: any("pgretention run" in command for command in writers_in(room)))
        process.send_signal(which)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "Interrupted: nothing is proven.\n", "")
    assert (left_in(room), writers_in(room)) == ([], set())
