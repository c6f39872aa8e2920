"""A finding: what is wrong with which object, what that would do to a run, and what puts it right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from psycopg import sql

from pgretention import db
from pgretention.policy import Table

LARGE = 10_000
"""Rows of a table from which on a look at all of them for each deleted row is an error."""


class Severity(StrEnum):
    """By the damage: an error stops the job from running, a warning wants a decision, a note wants to be known."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know before a run. `code` is its kind, `object` what it is about, `fix` SQL to paste or words."""

    severity: Severity
    code: str
    object: str
    why: str
    fix: str

    def as_json(self) -> dict[str, str]:
        """Ready for `json.dumps`."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "object": self.object,
            "why": self.why,
            "fix": self.fix,
        }


def sorted_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def statement(name: str) -> bytes:
    """A fixed look of ours from `sql/`."""
    return db.statement(f"preflight_{name}")


def quoted(table: Table, *columns: str) -> str:
    """A table as SQL, with columns in parentheses if there are any."""
    name = sql.Identifier(table.schema, table.name).as_string()
    return f"{name} ({', '.join(sql.Identifier(column).as_string() for column in columns)})" if columns else name


def quoted_name(name: str) -> str:
    """A name as SQL."""
    return sql.Identifier(name).as_string()
