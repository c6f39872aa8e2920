"""Runs remembered beyond the end of the process, in an SQLite file of bounded size, never in the cleaned database.

SQLite sees to it that a crash in the middle leaves the file as it was, and that two workers can share one.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from pgretention.errors import ConfigurationError
from pgretention.sinks import logs
from pgretention.sinks.history import DETAILED, RUNS
from pgretention.sinks.log_names import ERROR
from pgretention.sinks.records import RunRecord

LARGEST: Final = 64 << 20
"""Bytes of the file, which SQLite does not exceed."""

_VERSION: Final = 1
_WAIT: Final = 1.0
_PASSING: Final = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL"})
"""What is better some other time: no reason for a worker not to start."""
_NONSENSE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a record raises that makes no sense."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    place integer PRIMARY KEY AUTOINCREMENT,
    job text NOT NULL,
    detailed integer NOT NULL,
    record text NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_of_a_job ON runs (job, place);
PRAGMA user_version = 1;
"""
_TOO_OLD: Final = (
    "DELETE FROM runs WHERE job = :job"
    " AND place NOT IN (SELECT place FROM runs WHERE job = :job ORDER BY place DESC LIMIT :runs)"
)
_IN_FULL: Final = (
    "SELECT place, record FROM runs WHERE job = :job AND detailed ORDER BY place DESC LIMIT -1 OFFSET :detailed"
)


class FileArchive:
    """The runs in the file at `path`, which is made if it is not there.

    Raises ConfigurationError with one line for a file that cannot be read or written. Later failures, a full disk say,
    are logged and cost the run in question, nothing else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with self._open() as file:
                self._adopt(file)
        except OSError as error:
            raise ConfigurationError([_unusable(path, os.strerror(error.errno or 0))]) from None
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", None) not in _PASSING:
                raise ConfigurationError([_unusable(path, str(error))]) from None
            _complain(error)

    def _adopt(self, file: sqlite3.Connection) -> None:
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version == _VERSION:
            return
        if version != 0:
            raise ConfigurationError([_unusable(self._path, f"it is of version {version}, which is not ours")])
        if file.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            raise ConfigurationError([_unusable(self._path, "it holds something else")])
        file.executescript(_SCHEMA)

    def load(self) -> Iterator[RunRecord]:
        """What the file has, the oldest first; a record that makes no sense is passed over."""
        try:
            with self._open() as file:
                self._adopt(file)
                rows = file.execute("SELECT record FROM runs ORDER BY place").fetchall()
        except (sqlite3.Error, OSError, ConfigurationError) as error:
            _complain(error)
            return
        for (text,) in rows:
            try:
                yield RunRecord.from_json(json.loads(text))
            except _NONSENSE as error:
                _complain(error)

    def keep(self, record: RunRecord) -> None:
        """Add a run; what is too old goes: the oldest of its job, and the details of those before the latest."""
        try:
            with self._open() as file, file:
                self._adopt(file)
                file.execute(_TOO_OLD, {"job": record.job, "runs": RUNS - 1})
                file.execute(
                    "INSERT INTO runs (job, detailed, record) VALUES (?, ?, ?)",
                    (record.job, bool(record.stretches or record.notes), _text(record)),
                )
                for place, text in file.execute(_IN_FULL, {"job": record.job, "detailed": DETAILED}).fetchall():
                    short = _text(RunRecord.from_json(json.loads(text)).in_short())
                    file.execute("UPDATE runs SET detailed = 0, record = ? WHERE place = ?", (short, place))
        except (sqlite3.Error, OSError, ConfigurationError, *_NONSENSE) as error:
            _complain(error)

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # what SQLite makes itself everybody may read
        with closing(sqlite3.connect(self._path, timeout=_WAIT)) as file:
            (page,) = file.execute("PRAGMA page_size").fetchone()
            file.execute(f"PRAGMA max_page_count = {LARGEST // page}")
            yield file


def _text(record: RunRecord) -> str:
    return json.dumps(record.as_json(), separators=(",", ":"))


def _unusable(path: Path, why: str) -> str:
    return f"History:File: {path}: {why}; name a file in a folder that this user may write to, or off"


def _complain(error: Exception) -> None:
    """By the type of the error, and SQLite's name for it: its text may quote anything."""
    code = getattr(error, "sqlite_errorname", None)
    logs.say(ERROR, "history not kept", error_type=type(error).__qualname__, error=code)
