"""The throw-away database of the demo: a server full of rows, and both jobs under a role that may do nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import app, schema
from pgretention.app import Assignment
from pgretention.clock import SystemClock
from pgretention.demo import data
from pgretention.demo.binaries import Binaries, find_binaries
from pgretention.demo.data import Amount
from pgretention.demo.screen import Screen
from pgretention.demo.server import ThrowawayServer

ROLE = "pgretention_worker"

_CLOCK = SystemClock()


@contextmanager
def opened(
    screen: Screen, amount: Amount, binaries: Binaries | None
) -> Generator[tuple[ThrowawayServer, Connection[TupleRow]]]:
    """While inside, a server with the reference schema full of rows; yields it and a connection of its owner.

    Raises ThrowawayServerError where no PostgreSQL can be started.
    """
    screen.part("A database to throw away")
    chosen = binaries or find_binaries()
    with ExitStack() as stack:
        with timed(screen, f"Starting {chosen}, on {ThrowawayServer.host} alone"):
            server = stack.enter_context(ThrowawayServer.start(chosen))
        owner = stack.enter_context(psycopg.connect(server.dsn(), autocommit=True))
        with timed(
            screen,
            f"Loading {amount.sessions:,} sessions, {amount.views:,} views, {amount.events:,} events,"
            f" {amount.favorites:,} favorites",
        ):
            data.create(owner)
            data.load(owner, app.default(app.JOB_NAMES[0]).job.policy.retention, amount)
        yield server, owner


def hired(screen: Screen, server: ThrowawayServer, owner: Connection[TupleRow]) -> tuple[Assignment, Assignment]:
    """Both jobs as they are by default, under a role that is made for them."""
    activity, favorites = (app.default(name) for name in app.JOB_NAMES)
    password = secrets.token_urlsafe(18)
    owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(ROLE), password))
    grants = schema.grants((activity.job.policy, favorites.job.policy), ROLE)
    owner.execute(grants.encode())
    screen.say("The jobs may do what their policies ask for, and nothing else:")
    screen.statement(grants)
    dsn = server.dsn(user=ROLE, password=password)
    return replace(activity, dsn=dsn), replace(favorites, dsn=dsn)


@contextmanager
def timed(screen: Screen, words: str) -> Generator[None]:
    """Say what is being done and, when it is, how long it took."""
    began = _CLOCK.monotonic()
    with screen.busy(words):
        yield
    screen.say(f"{words:<72}{_CLOCK.monotonic() - began:5.1f} s")
