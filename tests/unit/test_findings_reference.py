"""docs/reference/findings.md has every kind of finding there is, and each of them is provoked by a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def codes() -> set[str]:
    """What stands in the place of a code in the sources of the check."""
    found: set[str] = set()
    for source in (ROOT / "src" / "pgretention" / "preflight").glob("*.py"):
        text = source.read_text("utf-8")
        found |= set(re.findall(r'(?:severity|Severity\.\w+),\s*"([a-z]+(?:-[a-z]+)*)"', text))
        found |= set(re.findall(r'^\s*(?:"\w+": )?\(?\s*"(old-snapshot|idle-slot)",', text, re.MULTILINE))
    return found


def test_the_page_has_a_row_for_every_code() -> None:
    page = (ROOT / "docs" / "reference" / "findings.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == codes() | {"idle-slot", "old-snapshot"}


def test_every_code_is_provoked_by_a_test() -> None:
    tests = "".join(
        (ROOT / "tests" / "db" / name).read_text("utf-8") for name in ("test_preflight.py", "test_horizon.py")
    )
    for code in codes():
        assert f'"{code}"' in tests, code
