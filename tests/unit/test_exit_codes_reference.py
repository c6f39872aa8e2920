"""docs/reference/exit-codes.md says of every outcome, every code and every command what the commands do."""

from __future__ import annotations

import re
from pathlib import Path

from pgretention.cli import COMMANDS
from pgretention.commands import codes
from pgretention.commands.run import exit_code
from pgretention.report import Outcome

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "exit-codes.md").read_text("utf-8")


def test_every_outcome_has_its_code() -> None:
    said = dict(re.findall(r"^\| `(\w+)` \| (\d) \|", PAGE, re.MULTILINE))
    assert said == {outcome.value: str(exit_code(outcome)) for outcome in Outcome}


def test_every_code_has_its_meaning_and_there_are_no_others() -> None:
    said = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert said == [0, codes.FAILED, codes.WRONG_USE, codes.REFUSED]


def test_every_command_is_spoken_of() -> None:
    table = PAGE.partition("## Of the other commands")[2]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(COMMANDS) - {"run"}


def test_the_page_is_reached_from_the_readme() -> None:
    assert "docs/reference/exit-codes.md" in (DOCS.parent / "README.md").read_text("utf-8")
