"""What a run should leave behind, thought out in plain Python without a database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID


@dataclass(frozen=True)
class Session:
    """`ends` is the text that goes into ended_at, or microseconds after the cutoff, or None."""

    id: UUID
    status: str
    ends: str | int | None


@dataclass(frozen=True)
class Child:
    """An event or a view: `refers_to` is the view or event at the other end of its SET NULL reference."""

    id: UUID
    session: UUID
    property_object: UUID
    refers_to: UUID | None = None


@dataclass(frozen=True)
class Activity:
    sessions: tuple[Session, ...] = ()
    events: tuple[Child, ...] = ()
    views: tuple[Child, ...] = ()


AGES = {"4713-01-01 BC": 0, "0044-03-15 BC": 1, "1969-12-31": 2, "2020-01-01": 3, "2020-01-01 00:00:00.000001": 4}
"""Texts of instants before the cutoff, from the oldest on."""

NEVER = ("-infinity", "infinity", "24989-01-01", "294276-12-31")
"""Texts of instants that are not before the cutoff, or no instants."""


def age(session: Session) -> tuple[int, UUID] | None:
    """The place of an expired session in the order of deletion; None for one that is not expired."""
    if session.status != "Inactive" or session.ends is None or session.ends in NEVER:
        return None
    if isinstance(session.ends, int):
        return (len(AGES) + session.ends + 10**9, session.id) if session.ends < 0 else None
    return AGES[session.ends], session.id


def after_run(before: Activity, most_sessions: int | None) -> Activity:
    """The oldest expired sessions go, at most so many, with all that is theirs; references to what went are NULL."""
    oldest = sorted(order for session in before.sessions if (order := age(session)) is not None)
    gone = {key for _, key in oldest[:most_sessions]}
    events = [event for event in before.events if event.session not in gone]
    views = [view for view in before.views if view.session not in gone]
    kept = {child.id for child in (*events, *views)}
    return Activity(
        tuple(session for session in before.sessions if session.id not in gone),
        tuple(event if event.refers_to in kept else replace(event, refers_to=None) for event in events),
        tuple(view if view.refers_to in kept else replace(view, refers_to=None) for view in views),
    )
