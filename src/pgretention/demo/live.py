"""The status page with live data: a worker on a throw-away database, whose rows go on expiring, until a stop.

Nights are minutes here: both jobs run once a minute, half a minute apart, in batches small enough to be watched.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final, TextIO

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import db, service, web
from pgretention.app import Assignment
from pgretention.config import Settings
from pgretention.demo import data, stage
from pgretention.demo.binaries import Binaries
from pgretention.demo.data import Amount
from pgretention.demo.screen import Screen, screen_for
from pgretention.errors import ConfigurationError
from pgretention.job import Limits, Pace
from pgretention.schedule import Schedule
from pgretention.stop import Stop

_EVERY: Final = timedelta(seconds=2)
_SESSIONS, _FAVORITES = 20, 15
_BATCHES: Final = 60
_PAUSE: Final = Pace(pause=timedelta(milliseconds=300))


def live(
    out: TextIO, settings: Settings, stop: Stop, *, amount: Amount = data.FULL, binaries: Binaries | None = None
) -> None:
    """Say on `out` where the page is, and keep it up until the stop; nothing is left behind, nor kept anywhere.

    Raises ConfigurationError where nobody can listen, and ThrowawayServerError where no PostgreSQL can be started.
    """
    if settings.http_listen is None:
        raise ConfigurationError(["Http:Listen is off, and the page is what there is to see; give it host:port"])
    with closing(web.listener(settings.http_listen)):
        pass  # it is free, which is better known before there is a database than after
    screen = screen_for(out)
    with stage.opened(screen, amount, binaries) as (server, owner):
        activity, favorites = stage.hired(screen, server, owner)
        assignments = (
            _by_the_minute(activity, "0 * * * * *", _BATCHES),
            _by_the_minute(favorites, "30 * * * * *", None),
        )
        with _ageing(owner, activity.job.policy.retention, stop):
            _invite(screen, settings)
            service.work(assignments, replace(settings, history_file=None), sinks=(), stop=stop)
    screen.say("The server and its files are gone.")


def _by_the_minute(assignment: Assignment, cron: str, max_batches: int | None) -> Assignment:
    limits = Limits(batch_size=20, max_run_duration=timedelta(seconds=25), max_batches=max_batches)
    schedule = Schedule.parse(cron, assignment.job.schedule.zone)
    return replace(assignment, job=replace(assignment.job, schedule=schedule, limits=limits, pace=_PAUSE))


def _invite(screen: Screen, settings: Settings) -> None:
    screen.part("The page")
    screen.say(f"http://{settings.http_listen}/ shows both jobs at work: they run once a minute, half a minute apart.")
    screen.say("Meanwhile rows go on expiring, some every two seconds.")
    screen.say("Ctrl-C ends it, and the server and its files with it.")


@contextmanager
def _ageing(owner: Connection[TupleRow], retention: timedelta, stop: Stop) -> Generator[None]:
    """While inside, some rows more expire every now and then."""
    statement = db.statement("demo_ageing")
    rows = {"retention": retention, "sessions": _SESSIONS, "favorites": _FAVORITES}

    def age() -> None:
        with (
            suppress(psycopg.Error),
            psycopg.connect(owner.info.dsn, password=owner.info.password, autocommit=True) as connection,
        ):
            while not stop.wait(_EVERY):
                connection.execute(statement, rows)

    thread = threading.Thread(target=age, name="ageing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.request()
        thread.join()
