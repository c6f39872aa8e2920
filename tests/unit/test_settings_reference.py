from pathlib import Path

from pgretention.config import KEYS
from pgretention.config.reference import renewed, table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_reference_page_is_current() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), f"run: python -m pgretention.config.reference {PAGE.relative_to(PAGE.parents[2])}"


def test_the_reference_page_has_a_row_for_every_setting() -> None:
    assert [row.split("`")[1] for row in table().splitlines()[2:]] == [key.path for key in KEYS]
    assert table() in PAGE.read_text("utf-8")
