"""The tables of docs/reference/logs.md, from the names themselves.

`python -m pgretention.sinks.log_reference docs/reference/logs.md` writes them anew; a test says when they are stale.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from pgretention import pages
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.sinks import log_names
from pgretention.sinks.log_names import Line

_BEGIN: Final = "<!-- logs: generated from pgretention.sinks.log_names -->\n"
_END: Final = "<!-- logs: end -->\n"

_OF_A_RUN: Final = (activity_retention.NAME, guest_favorites_cleanup.NAME)
_BETWEEN_RUNS: Final = (log_names.SCHEDULED, log_names.CATCHING_UP, log_names.MISSED)


def tables() -> str:
    """Every event of a run, in a Markdown table for each job, and those between runs."""
    runs = [_table(f"Runs of `{job}`", _lines(job)) for job in _OF_A_RUN]
    return "\n".join((*runs, _table("Between runs, of every job", _BETWEEN_RUNS)))


def renewed(page: str) -> str:
    """The page with what stands between its two markers replaced by the current tables."""
    return pages.renewed(page, _BEGIN, tables(), _END)


def _lines(job: str) -> list[Line]:
    names = log_names.of(job)
    return [getattr(names, field.name) for field in fields(names)]


def _table(title: str, lines: Iterable[Line]) -> str:
    rows = [f"| `{line.event}` | {_level(line)} | {_fields(line)} |\n" for line in lines]
    return "".join((f"## {title}\n\n", "| event | level | fields |\n", "|---|---|---|\n", *rows))


def _fields(line: Line) -> str:
    return ", ".join(f"`{name}`" for name in line.fields)


def _level(line: Line) -> str:
    return logging.getLevelName(line.level).lower()


if __name__ == "__main__":
    pages.write(sys.argv[1:], renewed)
