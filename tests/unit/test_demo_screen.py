"""The tour looks its part in a terminal and is plain, complete text everywhere else."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from pgretention.demo.proof import Check
from pgretention.demo.screen import Plain, Screen, screen_for
from pgretention.demo.terminal import Terminal


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return FakeTerminal()


def show_everything(screen: Screen) -> None:
    screen.part("A part")
    screen.say("A line with [brackets] and 12 numbers")
    screen.statement("-- why\nSELECT 1;")
    screen.table([("table", "rows", "more"), ("a", "1,000", "2"), ("longer", "3", "4,000")])
    screen.checks([Check("It is so", holds=True, detail="5 rows"), Check("And so", holds=False, detail="6 [of 7]")])
    with screen.busy("Working"):
        screen.say("Done")


def test_a_pipe_gets_plain_text() -> None:
    out = io.StringIO()
    show_everything(screen_for(out))
    assert out.getvalue() == (
        "\n== A part ==\n\n"
        "A line with [brackets] and 12 numbers\n"
        "    -- why\n    SELECT 1;\n"
        "table    rows   more\n"
        "a       1,000      2\n"
        "longer      3  4,000\n"
        "ok  It is so  5 rows\n"
        "NO  And so    6 [of 7]\n"
        "Done\n"
    )


def test_a_terminal_gets_the_same_words_in_colour(terminal: FakeTerminal) -> None:
    screen = screen_for(terminal)
    assert isinstance(screen, Terminal)
    show_everything(screen)
    shown = terminal.getvalue()
    assert "\x1b[" in shown
    for words in ("A part", "[brackets]", "1,000", "4,000", "It is so", "NO", "6 [of 7]", "Working", "Done"):
        assert words in shown


def test_a_terminal_without_colours_is_respected(terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    show_everything(screen_for(terminal))
    assert "\x1b[3" not in terminal.getvalue()
    assert "ok" in terminal.getvalue()


def test_every_line_reaches_a_pipe_at_once() -> None:
    """Whoever follows a pipe sees each step when it is done, and a tour that is killed has said how far it got."""
    script = (
        "import os, sys; from pgretention.demo.screen import screen_for; screen_for(sys.stdout).say('now'); os._exit(0)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "now\n"


def test_rich_is_not_imported_for_a_pipe() -> None:
    script = "import sys, pgretention.demo.screen as s; s.screen_for(sys.stdout); print('rich' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_the_plain_screen_is_what_any_other_file_gets() -> None:
    assert isinstance(screen_for(io.StringIO()), Plain)
