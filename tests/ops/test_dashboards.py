"""The dashboards are what their program writes, and name no metric that there is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ops.grafana.generate import FOLDER, dashboards, text
from pgretention.sinks.metric_names import COMMON, OWN

NAMES = {metric.name for metrics in (COMMON, *OWN.values()) for metric in metrics}
WANTED = {"pin-user-activity": "Retention", "favorites-overview": "Cleanup", "pgretention": "$job"}


def queries(made: dict[str, Any]) -> Iterator[str]:
    """Every expression of a dashboard."""
    for panel in made["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_the_files_are_what_the_program_writes() -> None:
    assert {file.name for file in FOLDER.glob("*.json")} == set(dashboards())
    for name, made in dashboards().items():
        assert (FOLDER / name).read_text("utf-8") == text(made), "run: python ops/grafana/generate.py"


@pytest.mark.req("A-25", "F-18")
@pytest.mark.parametrize("name", dashboards())
def test_a_dashboard_has_its_row_and_asks_for_metrics_that_there_are(name: str) -> None:
    made = json.loads((FOLDER / name).read_text("utf-8"))
    assert WANTED[made["uid"]] in [panel["title"] for panel in made["panels"] if panel["type"] == "row"]
    asked = {metric for query in queries(made) for metric in re.findall(r"\b[a-z_]+_[a-z_]+(?=[{\[)])", query)}
    assert asked
    for metric in asked:
        assert {metric, re.sub("_(bucket|count|sum)$", "", metric)} & NAMES, metric


@pytest.mark.parametrize("name", dashboards())
def test_no_panel_covers_another_one(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboards()[name]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
