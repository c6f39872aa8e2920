"""The Grafana dashboards beside this file, written by it: `python ops/grafana/generate.py`.

One for each specification and one for any job. Gauges and timestamps are the maximum over all workers, counters their
sum, as docs/reference/metrics.md says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_BATCHES = "pgretention_batch_duration_seconds_bucket"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: what it shows, as (legend, expression) pairs, in which unit, and how wide and high it is."""

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8

    def as_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """In Grafana's own form."""
        targets = [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(self.queries)
        ]
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
            "targets": targets,
        }


def panels(job: str) -> list[Panel]:
    """What is shown of any job; `job` is the value of the label, or a variable of Grafana."""
    of = f'job="{job}"'
    return [
        Panel(
            "Since the last success",
            "Seconds since a run last did all that it may. A day is due.",
            [("", f"time() - max(pgretention_last_success_timestamp_seconds{{{of}}})")],
            "s",
            "stat",
            6,
            5,
        ),
        Panel(
            "Until the next run",
            "Seconds until it is due.",
            [("", f"max(pgretention_next_run_timestamp_seconds{{{of}}}) - time()")],
            "s",
            "stat",
            6,
            5,
        ),
        Panel(
            "Backlog",
            "Expired rows of the root table that are still there, as last counted.",
            [("", f"max(pgretention_backlog_rows{{{of}}})")],
            "short",
            "stat",
            6,
            5,
        ),
        Panel(
            "Gone in",
            "Time until nothing expired is left, at the pace of the last two runs. Infinite where it does not fall.",
            [("", f"max(pgretention_drain_eta_seconds{{{of}}})")],
            "s",
            "stat",
            6,
            5,
        ),
        Panel(
            "Rows deleted a day",
            "By table, committed.",
            [("{{table}}", f"sum by (table) (increase(pgretention_deleted_rows_total{{{of}}}[1d]))")],
        ),
        Panel(
            "Backlog over time",
            "At the start and the end of each run: a saw whose teeth do not get higher.",
            [("rows", f"max(pgretention_backlog_rows{{{of}}})")],
        ),
        Panel(
            "Oldest expiry",
            "How far back the oldest expiry lies that is still there.",
            [("age", f"max(pgretention_oldest_expired_age_seconds{{{of}}})")],
            "s",
        ),
        Panel(
            "Runs by outcome",
            "How many a day ended how.",
            [("{{outcome}}", f"sum by (outcome) (increase(pgretention_runs_total{{{of}}}[1d]))")],
        ),
        Panel(
            "Errors, retries and missed runs",
            "A day, by kind.",
            [
                ("error: {{kind}}", f"sum by (kind) (increase(pgretention_errors_total{{{of}}}[1d]))"),
                ("retry: {{kind}}", f"sum by (kind) (increase(pgretention_retries_total{{{of}}}[1d]))"),
                ("missed: {{reason}}", f"sum by (reason) (increase(pgretention_missed_runs_total{{{of}}}[1d]))"),
                ("rows kept", f"sum(increase(pgretention_rows_kept_total{{{of}}}[1d]))"),
            ],
        ),
        Panel(
            "Batches",
            "How long 95 of 100 batches took at most.",
            [
                ("p95", f"histogram_quantile(0.95, sum by (le) (increase({_BATCHES}{{{of}}}[1d])))"),
            ],
            "s",
        ),
        Panel(
            "Batch size",
            "Root rows that a batch takes at most: smaller where batches were too slow.",
            [("rows", f"min(pgretention_batch_size{{{of}}})")],
        ),
        Panel(
            "Held back",
            "Seconds a day that runs waited for others, by reason.",
            [("{{reason}}", f"sum by (reason) (increase(pgretention_throttled_seconds_total{{{of}}}[1d]))")],
            "s",
        ),
        Panel(
            "Duration of runs",
            "How long half of the runs took at most, and all of them.",
            [
                (name, f"histogram_quantile({part}, sum by (le) (increase({bucket}[7d])))")
                for name, part in (("median", 0.5), ("longest", 1))
                for bucket in [f"pgretention_run_duration_seconds_bucket{{{of}}}"]
            ],
            "s",
        ),
    ]


_ACTIVITY = [
    Panel(
        "Deleted by activity-retention",
        "Rows a day by the names of the specification.",
        [
            ("sessions", "sum(increase(activity_retention_deleted_sessions_total[1d]))"),
            ("views", "sum(increase(activity_retention_deleted_property_object_views_total[1d]))"),
            ("events", "sum(increase(activity_retention_deleted_action_events_total[1d]))"),
        ],
    ),
    Panel(
        "Eligible backlog",
        "Expired sessions at the start of each run.",
        [("sessions", "max(activity_retention_eligible_backlog)")],
    ),
    Panel(
        "Lock contention",
        "Runs a day that found another one on: with several workers that is all but one.",
        [("skipped", "sum(increase(activity_retention_lock_contention_total[1d]))")],
    ),
]

_FAVORITES = [
    Panel(
        "Deleted by guest-favorites-cleanup",
        "Favorites a day.",
        [("favorites", "sum(increase(favorites_guest_cleanup_deleted_total[1d]))")],
    ),
    Panel(
        "Backlog after the run",
        "Expired favorites of guests that were left.",
        [("favorites", "max(favorites_guest_cleanup_backlog)")],
    ),
    Panel(
        "Errors and batches",
        "A day.",
        [
            ("errors", "sum(increase(favorites_guest_cleanup_errors_total[1d]))"),
            ("batches", "sum(increase(favorites_guest_cleanup_batches_total[1d]))"),
        ],
    ),
]


def dashboard(
    uid: str, title: str, rows: Sequence[tuple[str, Sequence[Panel]]], *, jobs: bool = False
) -> dict[str, Any]:
    """A dashboard of rows of panels; with `jobs` it asks which job is meant."""
    made: list[dict[str, Any]] = []
    y = 0
    for heading, shown in rows:
        made.append(
            {"id": len(made) + 1, "type": "row", "title": heading, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}
        )
        x, y, height = 0, y + 1, 0
        for panel in shown:
            if x + panel.width > _WIDTH:
                x, y, height = 0, y + height, 0
            made.append(panel.as_json(len(made) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    variables: list[dict[str, Any]] = [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
    if jobs:
        names = "label_values(pgretention_runs_total, job)"
        variables.append({"name": "job", "type": "query", "datasource": _SOURCE, "query": names, "refresh": 2})
    return {
        "uid": uid,
        "title": title,
        "tags": ["pgretention"],
        "schemaVersion": 39,
        "time": {"from": "now-14d", "to": "now"},
        "refresh": "5m",
        "templating": {"list": variables},
        "panels": made,
    }


def dashboards() -> dict[str, dict[str, Any]]:
    """All of them by the name of their file."""
    activity = [("Retention", [*panels("activity-retention")[:4], *_ACTIVITY, *panels("activity-retention")[4:]])]
    guests = [
        ("Cleanup", [*panels("guest-favorites-cleanup")[:4], *_FAVORITES, *panels("guest-favorites-cleanup")[4:]])
    ]
    return {
        "pin-user-activity.json": dashboard("pin-user-activity", "User activity", activity),
        "favorites-overview.json": dashboard("favorites-overview", "Favorites", guests),
        "pgretention.json": dashboard("pgretention", "pgretention", [("$job", panels("$job"))], jobs=True),
    }


def text(made: dict[str, Any]) -> str:
    """As it stands in the file."""
    return json.dumps(made, indent=2) + "\n"


if __name__ == "__main__":
    for name, made in dashboards().items():
        (FOLDER / name).write_text(text(made), "utf-8")
