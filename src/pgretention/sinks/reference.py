"""The tables of docs/reference/metrics.md, from the metrics themselves.

`python -m pgretention.sinks.reference docs/reference/metrics.md` writes them anew; a test says when they are stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from pgretention import pages
from pgretention.sinks.measures import LABELS
from pgretention.sinks.metric_names import COMMON, OWN, Metric

_BEGIN: Final = "<!-- metrics: generated from pgretention.sinks.metric_names -->\n"
_END: Final = "<!-- metrics: end -->\n"


def tables() -> str:
    """Every metric, in a Markdown table for all jobs and one for each job that has names of its own."""
    common = _table("Every job, with the label `job`", [(metric, _labels(metric)) for metric in COMMON])
    own = [_table(f"Only `{job}`", [(metric, "") for metric in metrics]) for job, metrics in OWN.items()]
    return "\n".join((common, *own))


def renewed(page: str) -> str:
    """The page with what stands between its two markers replaced by the current tables."""
    return pages.renewed(page, _BEGIN, tables(), _END)


def _table(title: str, metrics: Iterable[tuple[Metric, str]]) -> str:
    rows = [f"| `{metric.name}` | {metric.kind} | {labels} | {metric.about} |\n" for metric, labels in metrics]
    head = ("| metric | type | further labels | what it says |\n", "|---|---|---|---|\n")
    return "".join((f"## {title}\n\n", *head, *rows))


def _labels(metric: Metric) -> str:
    label = LABELS.get(metric.measure)
    return "" if label is None else f"`{label}`"


if __name__ == "__main__":
    pages.write(sys.argv[1:], renewed)
