"""What is done to our processes, their backends, their lines and the server, at instants drawn at random."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tests.databases import WORKER, Database
from tests.torture.application import Tally
from tests.torture.replicas import Company, Live
from tests.torture.stage import RELATIONS, connected
from tests.torture.wires import Loses, Wires

_OUR_BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgretention/%' ORDER BY pid"

_PATIENCE = 120.0
"""Seconds after which a server that answers nothing at all is called lost."""

_TIMEOUTS = ("idle_session_timeout", "idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout")

_HARMLESS = (
    ("CREATE INDEX passing ON {} (id)", "DROP INDEX IF EXISTS {}.passing"),
    ("ALTER TABLE {} ADD COLUMN passing integer", "ALTER TABLE {} DROP COLUMN IF EXISTS passing"),
)


class Faults(threading.Thread):
    """One fault after the other, done to our processes, their backends and their lines."""

    def __init__(self, database: Database, company: Company, wires: Wires, tally: Tally, seed: str) -> None:
        super().__init__(name=seed)
        self.diary: list[str] = []
        self._database, self._company, self._wires = database, company, wires
        self._tally = tally
        self._draw = random.Random(seed)
        self._over = threading.Event()
        self._began = time.monotonic()

    def end(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        acts = self._acts()
        odds = [odds for _, _, odds in acts]
        while not self._over.wait(self._draw.uniform(0.05, 0.8)):
            name, act, _ = self._draw.choices(acts, odds)[0]
            try:
                done = act()
            except psycopg.Error:  # the server is not back yet
                continue
            if done is not None:
                self._note(name, done)

    def _note(self, what: str, done: str) -> None:
        self._tally.add("faults", what)
        self.diary.append(f"{time.monotonic() - self._began:8.2f} s  {what}: {done}")

    def _acts(self) -> tuple[tuple[str, Callable[[], str | None], int], ...]:
        return (
            ("process killed", self.kill, 10),
            ("process asked to end", self.ask_to_end, 8),
            ("process suspended", self.suspend, 12),
            ("backend terminated", self.terminate_backend, 10),
            ("backend cancelled", self.cancel_backend, 12),
            ("lines cut", self.cut_lines, 8),
            ("COMMIT to be lost", self.lose_question, 6),
            ("answer to COMMIT to be lost", self.lose_answer, 6),
            ("claimed batch to be held up", self.hold_next_batch, 14),
            ("lines held up", self.hold_up_lines, 6),
        )

    def kill(self) -> str | None:
        return self._signal(signal.SIGKILL)

    def ask_to_end(self) -> str | None:
        return self._signal(signal.SIGTERM)

    def suspend(self) -> str | None:
        live = self._somebody()
        if live is None:
            return None
        live.send(signal.SIGSTOP)
        self._pause(0.1, 3.0)
        live.send(signal.SIGCONT)
        return live.name

    def terminate_backend(self) -> str | None:
        return self._to_backend("pg_terminate_backend")

    def cancel_backend(self) -> str | None:
        return self._to_backend("pg_cancel_backend")

    def cut_lines(self) -> str | None:
        return f"{count}" if (count := self._wires.cut()) else None

    def lose_question(self) -> str:
        self._wires.lose_next_commit(Loses.QUESTION)
        return "armed"

    def lose_answer(self) -> str:
        self._wires.lose_next_commit(Loses.ANSWER)
        return "armed"

    def hold_next_batch(self) -> str:
        seconds = self._draw.uniform(0.5, 1.5)
        self._wires.hold_next_batch(seconds)
        return f"for {seconds:.2f} s"

    def hold_up_lines(self) -> str:
        self._wires.hold_up()
        self._pause(0.1, 3.0)
        self._wires.go_on()
        return "over"

    def _signal(self, which: signal.Signals) -> str | None:
        live = self._somebody()
        if live is None:
            return None
        live.send(which)
        return live.name

    def _somebody(self) -> Live | None:
        live = self._company.live
        return self._draw.choice(live) if live else None

    def _to_backend(self, function: str) -> str | None:
        pid = self._backend()
        if pid is None:
            return None
        with connected(self._database) as admin:
            admin.execute(f"SELECT {function}(%s)".encode(), [pid])
        return f"{pid}"

    def _backend(self) -> int | None:
        with connected(self._database) as admin:
            pids = [pid for (pid,) in admin.execute(_OUR_BACKENDS)]
        return self._draw.choice(pids) if pids else None

    def _pause(self, at_least: float, at_most: float) -> None:
        self._over.wait(self._draw.uniform(at_least, at_most))


class Upheavals(Faults):
    """What is done to the server, the role and the tables; what is changed is changed back at once."""

    def _acts(self) -> tuple[tuple[str, Callable[[], str | None], int], ...]:
        return (
            ("role given a short timeout", self.change_role, 6),
            ("table locked", self.lock_table, 8),
            ("table changed", self.change_table, 4),
            ("server restarted", self.restart_fast, 2),
            ("server crashed", self.restart_immediate, 2),
            ("backend crashed", self.crash_backend, 2),
        )

    def change_role(self) -> str:
        """New sessions of the worker's role begin with a timeout that is far too short."""
        name = self._draw.choice(_TIMEOUTS)
        milliseconds = self._draw.choice([5, 50, 500])
        role = sql.Identifier(WORKER)
        with connected(self._database) as admin:
            admin.execute(sql.SQL("ALTER ROLE {} SET {} = {}").format(role, sql.Identifier(name), milliseconds))
        self._pause(1.0, 4.0)
        self._insist(f"ALTER ROLE {WORKER} RESET ALL")
        return f"{name} = {milliseconds}"

    def lock_table(self) -> str:
        relation = self._draw.choice(RELATIONS)
        mode = self._draw.choice(["ACCESS EXCLUSIVE", "EXCLUSIVE", "SHARE"])
        with connected(self._database) as admin, admin.transaction():
            self._impatient(admin)
            admin.execute(f"LOCK TABLE {relation} IN {mode} MODE".encode())
            self._pause(0.1, 0.9)
        return f"{relation} {mode}"

    def change_table(self) -> str:
        relation = self._draw.choice(RELATIONS)
        do, undo = self._draw.choice(_HARMLESS)
        with connected(self._database) as admin:
            self._impatient(admin)
            admin.execute(do.format(relation).encode())
        self._pause(0.1, 2.0)
        self._insist(undo.format(relation.partition(".")[0] if "INDEX" in undo else relation))
        return f"{relation}: {do.partition(' {}')[0]}"

    def restart_fast(self) -> str:
        self._database.server.restart("fast")
        return "back"

    def restart_immediate(self) -> str:
        self._database.server.restart("immediate")
        self._tally.add("crashes", "all")
        return "back"

    def crash_backend(self) -> str | None:
        """Kill a backend of ours with SIGKILL: the server ends all others and recovers."""
        pid = self._backend()
        if pid is None or not self._is_backend(pid):
            return None
        with connected(self._database) as admin, suppress(psycopg.Error):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return None
            self._tally.add("crashes", "all")
            admin.execute("SELECT pg_sleep(10)")  # until we are thrown out with all the others
        self._insist("SELECT")
        return f"{pid}"

    def _is_backend(self, pid: int) -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            return int(parent) == self._database.server.pid
        return False

    def _impatient(self, admin: Connection[TupleRow]) -> None:
        admin.execute("SET lock_timeout = 2000")

    def _insist(self, statement: str) -> None:
        """Take back what was done, however often it takes; a server that is lost for good raises RuntimeError."""
        given_up = time.monotonic() + _PATIENCE
        while time.monotonic() < given_up:
            try:
                with connected(self._database) as admin:
                    self._impatient(admin)
                    admin.execute(statement.encode())
                    return
            except psycopg.Error:
                time.sleep(0.1)
        raise RuntimeError(f"the server did not do {statement} in {_PATIENCE:.0f} s")
