"""The page of log events says what the code says."""

from dataclasses import fields
from pathlib import Path

import pytest

from pgretention.sinks.log_names import LogNames, of
from pgretention.sinks.log_reference import renewed, tables

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "logs.md"


def test_the_reference_page_is_current() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), f"run: python -m pgretention.sinks.log_reference {PAGE.relative_to(ROOT)}"


@pytest.mark.parametrize("job", ["activity-retention", "guest-favorites-cleanup"])
def test_the_page_has_a_row_for_every_event_of_a_run(job: str) -> None:
    section = tables().split(f"## Runs of `{job}`")[1].split("##")[0]
    rows = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    names = of(job)
    assert rows == [getattr(names, field.name).event for field in fields(LogNames)]


OTHERS = (
    "worker started",
    "listening",
    "stopping",
    "cancelling what is in flight",
    "worker ended",
    "database away",
    "database back",
    "run crashed",
    "sink failed",
    "http server failed",
)


@pytest.mark.parametrize("event", OTHERS)
def test_every_other_event_is_on_the_page_and_in_the_code(event: str) -> None:
    assert f"`{event}`" in PAGE.read_text("utf-8")
    assert any(f'"{event}"' in file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
