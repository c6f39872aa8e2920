"""Fixtures of the browser: one for each process of the tests, and a visit for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser

from tests.page.browser import Look, Visit, chromium, visiting


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started when it is first asked for."""
    with chromium() as started:
        yield started


@pytest.fixture
def look() -> Look:
    """What `visit` looks with: a test puts its own in place, as a parameter or as a fixture of this name."""
    return Look()


@pytest.fixture
def visits(browser: Browser) -> Iterator[Callable[[Look], Visit]]:
    """Begins as many visits as a test wants, and judges them at its end."""
    with ExitStack() as begun:
        yield lambda look: begun.enter_context(visiting(browser, look))


@pytest.fixture
def visit(visits: Callable[[Look], Visit], look: Look) -> Visit:
    """A fresh visit, judged at the end of the test."""
    return visits(look)
