"""Every error pgretention raises on purpose: a message that names the object and the way out, never row content."""

from __future__ import annotations

from enum import StrEnum


class PgRetentionError(Exception):
    """The root of our own errors; its text may be shown to anybody."""


class ConfigurationError(PgRetentionError):
    """Settings that cannot be used: every problem found, one line each, none with a secret (H-05)."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class PolicyError(PgRetentionError, ValueError):
    """A policy or a limit that would not be safe; raised while it is being constructed."""


class Refusal(PgRetentionError):
    """A run that must not start, because the database is not what the policy says: every reason, one line each."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = tuple(reasons)


class FaultKind(StrEnum):
    """What kind of thing went wrong in a run; the `kind` of a report's error and of the error metric."""

    CONNECTION = "connection"
    SERIALIZATION = "serialization"
    DEADLOCK = "deadlock"
    LOCK_TIMEOUT = "lock_timeout"
    STATEMENT_TIMEOUT = "statement_timeout"
    CANCELLED = "cancelled"
    FOREIGN_KEY = "foreign_key"
    PRIVILEGE = "privilege"
    READ_ONLY = "read_only"
    CLAIM_MISMATCH = "claim_mismatch"
    COMMIT_UNKNOWN = "commit_unknown"
    REFUSED = "refused"
    CONFIGURATION = "configuration"
    DATABASE = "database"
    INTERNAL = "internal"


class Fault(PgRetentionError):
    """Something that went wrong while talking to the database, in words of our own.

    The server's message, DETAIL, HINT and CONTEXT can quote a row, so none of them is kept: only the SQLSTATE and
    the names of the constraint and the table (F-14, design section 6). `table` has its schema with it. One that is not
    `passing` is no better a moment later, whatever its kind: a wrong password say.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        sqlstate: str | None = None,
        constraint: str | None = None,
        table: str | None = None,
        passing: bool = True,
    ) -> None:
        super().__init__(message)
        self.passing = passing
        self.kind = kind
        self.sqlstate = sqlstate
        self.constraint = constraint
        self.table = table


class ThrowawayServerError(PgRetentionError):
    """A throw-away PostgreSQL that cannot be found or started: one line, with its own last words if it had any."""
