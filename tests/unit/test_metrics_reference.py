from pathlib import Path

from pgretention.sinks.metric_names import COMMON, OWN
from pgretention.sinks.reference import renewed, tables

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_the_reference_page_is_current() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), f"run: python -m pgretention.sinks.reference {PAGE.relative_to(PAGE.parents[2])}"


def test_the_reference_page_has_a_row_for_every_metric() -> None:
    names = [metric.name for metrics in (COMMON, *OWN.values()) for metric in metrics]
    assert [row.split("`")[1] for row in tables().splitlines() if row.startswith("| `")] == names
    assert tables() in PAGE.read_text("utf-8")
