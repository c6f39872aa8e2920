"""Debian's Chromium, driven without a screen, and a visit in it that complains of whatever goes wrong on a page.

Playwright's own browsers are never downloaded, and axe-core comes from `tests/page/package-lock.json`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, WebError, WebSocket, sync_playwright

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
SHOTS = "PGRETENTION_SHOTS"
"""The environment variable that names the directory for pictures of the pages; without it none is taken."""

_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_RUN_AXE = """async (tags) => {
    const found = await axe.run(document, {runOnly: {type: "tag", values: tags}, resultTypes: ["violations"]});
    return found.violations.map(({id, help, nodes}) => [id, help, nodes.map(({target}) => target.flat().join(" "))]);
}"""


class Viewport(Enum):
    """How much of a page is seen at once: width and height in pixels."""

    PHONE = (360, 740)
    LAPTOP = (1280, 800)
    WIDE = (2560, 1300)


@dataclass(frozen=True)
class Look:
    """What a page is looked at with; `credentials` are a user and a password, given when the server asks."""

    viewport: Viewport = Viewport.LAPTOP
    scheme: Literal["light", "dark"] = "light"
    scripts: bool = True
    credentials: tuple[str, str] | None = None

    def __str__(self) -> str:
        return "-".join([self.viewport.name.lower(), self.scheme, *([] if self.scripts else ["without-scripts"])])


@cache
def installed() -> str | None:
    """The browser; None where there is none, or no axe-core to judge pages by."""
    if not AXE.is_file():
        return None
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def described() -> str:
    """The line for the header of the tests."""
    return installed() or "none, or no axe-core (tests/page is left out)"


@contextmanager
def chromium() -> Generator[Browser]:
    """A running one, gone at the end."""
    program = installed()
    assert program is not None
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=_FLAGS, chromium_sandbox=False)
        try:
            yield started
        finally:
            started.close()


class Visit:
    """One page as one person sees it, with nothing kept from another visit; whatever goes wrong is a complaint.

    A complaint is an error or warning in the console, an error of a script, a request to another origin than those
    opened, or a request that failed. A subresource that the page itself gave up, as it does when it is left, did not.
    """

    def __init__(self, page: Page, look: Look) -> None:
        self.page = page
        self.look = look
        self.complaints: list[str] = []
        self._origins: set[tuple[str, str]] = set()
        self._expected: list[str] = []
        page.context.on("console", self._console)
        page.context.on("weberror", self._script_failed)
        page.context.on("request", self._request)
        page.context.on("requestfailed", self._request_failed)
        page.on("websocket", self._websocket)

    def open(self, url: str) -> Response:
        """Go there and wait until it is loaded; its origin may be asked for more from then on."""
        self._origins.add(_origin(url))
        response = self.page.goto(url)
        assert response is not None, url
        return response

    def expect(self, *patterns: str) -> None:
        """Complaints that match one of these are wanted: the visit fails without one for each."""
        self._expected += patterns

    def axe(self) -> None:
        """Fails with the list of what axe-core finds wrong with the page as it is now."""
        assert self.look.scripts, "axe-core is a script, and this visit runs none"
        self.page.evaluate(AXE.read_text("utf-8"))  # which no Content-Security-Policy hinders, as it would a tag
        found = self.page.evaluate(_RUN_AXE, RULES)
        listed = "\n".join("\n    ".join([f"{rule}: {text}", *places]) for rule, text, places in found)
        assert not found, f"axe-core finds at {self.page.url} ({self.look}):\n{listed}"

    def shot(self, name: str) -> None:
        """Keep a picture of the whole page as it is now, when a directory for them is named."""
        if folder := os.environ.get(SHOTS):
            self.page.screenshot(path=Path(folder) / f"{name}-{self.look}.png", full_page=True, animations="disabled")

    def judge(self) -> None:
        """Fails with the complaints that were not expected and the expected ones that never came."""
        self.page.title()  # answered after whatever the browser has already said
        unwanted = [said for said in self.complaints if not any(re.search(each, said) for each in self._expected)]
        missed = [each for each in self._expected if not any(re.search(each, said) for said in self.complaints)]
        listed = "\n".join([*unwanted, *(f"expected, and never came: {each}" for each in missed)])
        assert not listed, f"the visit ({self.look}) complains:\n{listed}"

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"console {message.type}: {message.text} ({message.location['url']})")

    def _script_failed(self, error: WebError) -> None:
        self.complaints.append(f"page error: {error.error}")

    def _request(self, request: Request) -> None:
        self._asked(request.url)

    def _websocket(self, socket: WebSocket) -> None:
        self._asked(socket.url)

    def _asked(self, url: str) -> None:
        if urlsplit(url).scheme not in {"data", "blob"} and _origin(url) not in self._origins:
            self.complaints.append(f"outside request: {url}")

    def _request_failed(self, request: Request) -> None:
        if request.is_navigation_request() or request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed request: {request.url} ({request.failure})")


@contextmanager
def visiting(browser: Browser, look: Look) -> Generator[Visit]:
    """A visit that is judged at its end, unless it has failed by then."""
    width, height = look.viewport.value
    user, password = look.credentials or ("", "")
    with browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=look.scheme,
        java_script_enabled=look.scripts,
        http_credentials={"username": user, "password": password} if look.credentials else None,
    ) as context:
        visit = Visit(context.new_page(), look)
        yield visit
        visit.judge()


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme), parts.netloc
