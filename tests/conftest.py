"""Every test that touches SQL runs on a real PostgreSQL, on each major version found here.

Without any the suite fails: a test that is skipped proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from hypothesis import settings

from pgretention.demo.binaries import Binaries, available, find_binaries
from pgretention.demo.server import ThrowawayServer
from pgretention.errors import ThrowawayServerError
from tests.databases import Database, fresh_database, make_template
from tests.page import browser
from tests.support import pgbouncer, prometheus

INSTALLED = available()

settings.register_profile("untimed", deadline=None)  # how long a test takes says nothing on a busy machine
settings.load_profile("untimed")

collect_ignore = [
    *([] if pgbouncer.installed() else ["db/test_pgbouncer.py"]),
    *([] if prometheus.installed() else ["ops/test_prometheus.py"]),
    *([] if browser.installed() else ["page"]),
]


def pytest_configure() -> None:
    try:
        find_binaries()
    except ThrowawayServerError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header() -> list[str]:
    return [
        f"servers: {', '.join(map(str, INSTALLED))}",
        f"poolers: {pgbouncer.described()}",
        f"prometheus: {prometheus.described()}",
        f"browser: {browser.described()}",
    ]


@pytest.fixture(params=INSTALLED, ids=lambda binaries: f"pg{binaries.version}")
def binaries(request: pytest.FixtureRequest) -> Binaries:
    """Each PostgreSQL found here, not started."""
    chosen: Binaries = request.param
    return chosen


@pytest.fixture(scope="session")
def start_once() -> Iterator[Callable[[Binaries], ThrowawayServer]]:
    """Starts a server when its version is first asked for and keeps it for the session."""
    with ExitStack() as servers:

        @cache
        def start(binaries: Binaries) -> ThrowawayServer:
            server = servers.enter_context(ThrowawayServer.start(binaries))
            make_template(server)
            return server

        yield start


@pytest.fixture(scope="session", params=INSTALLED, ids=lambda binaries: f"pg{binaries.version}")
def server(request: pytest.FixtureRequest, start_once: Callable[[Binaries], ThrowawayServer]) -> ThrowawayServer:
    """A server of each version, shared by all tests: whoever takes it down brings it up again."""
    return start_once(request.param)


@pytest.fixture
def database(server: ThrowawayServer) -> Iterator[Database]:
    """An own database with the reference schema and no rows, on each version."""
    with fresh_database(server) as database:
        yield database
