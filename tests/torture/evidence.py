"""What the witnesses and the tables show: each check is a query for what must not be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import WORKER
from tests.torture.accounts import Counts, counts_of
from tests.torture.stage import RELATIONS

Admin = Connection[TupleRow]

SHOWN = 5
"""Rows that a finding names."""

DELETABLE = """
    SELECT format('%%s %%s: guard %%s, expiry %%s, deleted at %%s by %%s', relation, id, guarded, expiry, at, run)
      FROM witness.gone
     WHERE by = %(worker)s AND id = root
       AND (guarded AND isfinite(expiry) AND expiry < at - interval '365 days') IS NOT TRUE
"""
"""1. A row was deleted that was not expired by its last committed state, or that its guard protected."""

NOTED = """
    SELECT format('{0} %%s was there and is gone, and nobody saw it go', id) FROM (
        SELECT id FROM witness.born WHERE relation = '{0}'
        EXCEPT (SELECT id FROM witness.gone WHERE relation = '{0}' UNION ALL SELECT id FROM {0})) AS missing
    UNION ALL
    SELECT format('{0} %%s is there and should not be', id) FROM (
        SELECT id FROM {0}
        EXCEPT (SELECT id FROM witness.born WHERE relation = '{0}'
                EXCEPT SELECT id FROM witness.gone WHERE relation = '{0}')) AS risen
"""
"""1. The tables hold exactly what was committed and not seen to be deleted."""

HALVES = """
    SELECT format('%%s %%s is still there, its session %%s is gone', child.relation, child.id, child.root)
      FROM witness.born child JOIN witness.gone parent
           ON parent.relation = 'user_activity.sessions' AND parent.id = child.root
      LEFT JOIN witness.gone went ON went.relation = child.relation AND went.id = child.id
     WHERE child.id <> child.root AND went.id IS NULL
    UNION ALL
    SELECT format('%%s %%s was deleted, its session %%s was not in the same transaction',
                  child.relation, child.id, child.root)
      FROM witness.gone child
      LEFT JOIN witness.gone parent
           ON parent.relation = 'user_activity.sessions' AND parent.id = child.root AND parent.xid = child.xid
     WHERE child.id <> child.root AND parent.id IS NULL
"""
"""2. A session goes with all its children in one transaction, and no child goes without its session."""

DANGLING = """
    SELECT format('event %%s refers to session %%s, which is gone', e.id, e.session_id)
      FROM user_activity.action_events e LEFT JOIN user_activity.sessions s ON s.id = e.session_id
     WHERE s.id IS NULL
    UNION ALL
    SELECT format('view %%s refers to session %%s, which is gone', v.id, v.session_id)
      FROM user_activity.property_object_views v LEFT JOIN user_activity.sessions s ON s.id = v.session_id
     WHERE s.id IS NULL
    UNION ALL
    SELECT format('event %%s refers to view %%s, which is gone', e.id, e.property_object_view_id)
      FROM user_activity.action_events e
      LEFT JOIN user_activity.property_object_views v ON v.id = e.property_object_view_id
     WHERE e.property_object_view_id IS NOT NULL AND v.id IS NULL
    UNION ALL
    SELECT format('view %%s refers to event %%s, which is gone', v.id, v.apply_filter_event_id)
      FROM user_activity.property_object_views v
      LEFT JOIN user_activity.action_events e ON e.id = v.apply_filter_event_id
     WHERE v.apply_filter_event_id IS NOT NULL AND e.id IS NULL
"""
"""2. Nothing refers to what is gone, in both directions of the SET NULL pair."""

REFERENCES = """
    SELECT format('%%s %%s has lost its reference to %%s, which is still there', b.relation, b.id, b.refers_to)
      FROM witness.born b
      JOIN (SELECT id, property_object_view_id AS refers_to FROM user_activity.action_events
            UNION ALL
            SELECT id, apply_filter_event_id FROM user_activity.property_object_views) AS kept USING (id)
     WHERE b.refers_to IS DISTINCT FROM kept.refers_to
       AND NOT (kept.refers_to IS NULL
                AND EXISTS (SELECT FROM witness.gone g WHERE g.root <> g.id AND g.id = b.refers_to))
"""
"""2. What stays keeps its references to what stays."""

UNLOCKED = """
    SELECT format('transaction %%s deleted sessions without a lock, in %%s', xid, run)
      FROM witness.gone
     WHERE by = %(worker)s AND relation = 'user_activity.sessions' AND NOT locked
     GROUP BY xid, run
"""
"""5. Whoever deletes sessions holds a lock that keeps other runs out, on the connection that deletes (A-09)."""

OVERLAPS = """
    WITH deleters AS (
        SELECT run, pid, min(began) AS began, max(pg_xact_commit_timestamp(xid::xid)) AS ended FROM witness.gone
         WHERE by = %(worker)s AND relation = 'user_activity.sessions' GROUP BY run, pid
    ), sorted AS (
        SELECT *, began < max(ended) OVER earlier AS meets FROM deleters
        WINDOW earlier AS (ORDER BY began, pid ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ), met AS (
        SELECT *, count(*) FILTER (WHERE meets IS NOT TRUE) OVER (ORDER BY began, pid) AS number FROM sorted
    )
    SELECT format('from %%s to %%s these deleted sessions at once: %%s',
                  min(began), max(ended), string_agg(DISTINCT run, ', '))
      FROM met GROUP BY number HAVING count(DISTINCT run) > 1
"""
"""5. Between the first and the last transaction in which a connection deletes sessions, only its own run does."""

IN_ANY_SNAPSHOT = {"deletable": DELETABLE, "halves": HALVES, "dangling": DANGLING, "unlocked": UNLOCKED}
"""Checks that hold at every instant, and are cheap."""

AT_THE_END = IN_ANY_SNAPSHOT | {
    **{f"noted {relation}": NOTED.format(relation) for relation in RELATIONS},
    "references": REFERENCES,
    "overlaps": OVERLAPS,
}


def rows(admin: Admin, checks: Mapping[str, str]) -> Iterator[str]:
    """Run checks written in SQL; each finding begins with the name of its check."""
    for name, query in checks.items():
        found = [text for (text,) in admin.execute(query.encode(), {"worker": WORKER})]
        yield from (f"{name}: {text}" for text in found[:SHOWN])
        if len(found) > SHOWN:
            yield f"{name}: and {len(found) - SHOWN} more"


@dataclass(frozen=True)
class Deed:
    """A transaction that deleted, according to the witnesses: rows by table, keys of root rows, the newest expiry."""

    counts: Counts
    roots: frozenset[str]
    newest: datetime | None


def deeds(admin: Admin) -> dict[str, list[Deed]]:
    """The transactions that deleted as the worker's role, by the name of the connections that did it."""
    counts = ", ".join(f"count(*) FILTER (WHERE relation = '{relation}')" for relation in RELATIONS)
    query = f"""
        SELECT run, array_agg(id::text) FILTER (WHERE id = root),
               least(greatest(max(expiry), '0001-01-02'), '9999-12-30'), -- Python knows no other years
               {counts}
          FROM witness.gone WHERE by = %(worker)s GROUP BY run, xid
    """
    found: dict[str, list[Deed]] = {}
    for name, roots, newest, *rows in admin.execute(query.encode(), {"worker": WORKER}):
        deed = Deed(counts_of(zip(RELATIONS, rows, strict=True)), frozenset(roots or ()), newest)
        found.setdefault(name, []).append(deed)
    return found
