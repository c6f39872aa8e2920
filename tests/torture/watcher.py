"""Looks at everything through one old snapshot after the other, which also keeps the dead rows from being vacuumed."""

from __future__ import annotations

import random
import threading

import psycopg
from psycopg import IsolationLevel

from tests.databases import Database
from tests.torture import evidence
from tests.torture.application import Tally
from tests.torture.stage import connected


class Watcher(threading.Thread):
    """What must hold at every instant is looked for at many of them."""

    def __init__(self, database: Database, seed: str, over: threading.Event, tally: Tally) -> None:
        super().__init__(name="watcher")
        self.findings: list[str] = []
        self._database = database
        self._draw = random.Random(f"{seed}/watcher")
        self._over = over
        self._tally = tally

    def run(self) -> None:
        while not self._over.wait(self._draw.uniform(0.5, 3.0)):
            try:
                self._look()
            except psycopg.Error:  # the server is not back yet
                continue
            self._tally.add("snapshots", "looked through")

    def _look(self) -> None:
        with connected(self._database) as admin:
            admin.isolation_level = IsolationLevel.REPEATABLE_READ
            with admin.transaction():
                found = list(evidence.rows(admin, evidence.IN_ANY_SNAPSHOT))
                self.findings += [text for text in found if text not in self.findings]
                self._over.wait(self._draw.uniform(1.0, 6.0))
