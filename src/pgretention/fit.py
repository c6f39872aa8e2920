"""Whether a policy fits the database it is pointed at: every reason against a run that the catalog gives.

A policy is safe by itself; here are the ways in which tables can make it delete too much or leave something dangling.
"""

from __future__ import annotations

from typing import Final

from pgretention.catalog import Catalog, TableFacts
from pgretention.policy import Child, Equals, Policy, Table

KEY_TYPES: Final = ("uuid", "bigint", "integer", "smallint", "text")
_EXPIRY_TYPE = "timestamp with time zone"
_GUARD_TYPES = ("text", "character varying")  # those that equal a text exactly, blanks and case included
_ENUM, _COMPOSITE = "enum ", "composite "


def reasons_against(policy: Policy, catalog: Catalog) -> list[str]:
    """Why this policy cannot be run on this database, one line a reason."""
    reasons = [reason for table in policy.tables for reason in _table_mismatches(table, catalog.tables.get(table))]
    root = catalog.tables.get(policy.root)
    if root is None or reasons:
        return reasons
    reasons += _root_mismatches(policy, root)
    for child in policy.children:
        reasons += _child_mismatches(child, catalog.tables[child.table], policy, root)
        reasons += _strangers(child, policy, catalog)
    return [*reasons, *_order_mismatches(policy, catalog), *_cascades(policy, catalog)]


def _table_mismatches(table: Table, facts: TableFacts | None) -> list[str]:
    if facts is None:
        return [f"{table}: no such table; create it, or point the connection at the database that has it"]
    if facts.kind != "table" or facts.has_inheritors:
        what = facts.kind if facts.kind != "table" else "table that others inherit from"
        return [f"{table}: is a {what}; only plain tables can be cleaned"]
    return [f"{table}: {hazard}" for hazard in facts.hazards]


def _root_mismatches(policy: Policy, root: TableFacts) -> list[str]:
    needed = (policy.key, policy.expiry, *(condition.column for condition in policy.guard))
    reasons = [
        f"{root.table}: has no column {column}, which the policy {policy.name} needs"
        for column in needed
        if column not in root.columns
    ]
    if reasons:
        return reasons
    if root.columns[policy.key] not in KEY_TYPES:
        reasons.append(
            f"{root.table}.{policy.key}: is of type {root.columns[policy.key]}; a key must be {', '.join(KEY_TYPES)}"
        )
    if policy.key not in root.unique:
        reasons.append(f"{root.table}.{policy.key}: is neither primary key nor NOT NULL and unique on its own")
    if root.columns[policy.expiry] != _EXPIRY_TYPE:
        found = root.columns[policy.expiry]
        reasons.append(
            f"{root.table}.{policy.expiry}: is of type {found}; only {_EXPIRY_TYPE} says which instant is meant"
        )
    for condition in policy.guard:
        found = root.columns[condition.column]
        if found.startswith(_COMPOSITE):
            reasons.append(f"{root.table}.{condition.column}: is of type {found}; it can be NULL and not NULL at once")
        if isinstance(condition, Equals) and found not in _GUARD_TYPES and not found.startswith(_ENUM):
            reasons.append(
                f"{root.table}.{condition.column}: is of type {found}; a guard needs text, varchar or an enum"
            )
    return reasons


def _child_mismatches(child: Child, facts: TableFacts, policy: Policy, root: TableFacts) -> list[str]:
    if child.root_key not in facts.columns:
        return [f"{child.table}: has no column {child.root_key}, which the policy {policy.name} needs"]
    if policy.key in root.columns and facts.columns[child.root_key] != root.columns[policy.key]:
        types = facts.columns[child.root_key], root.columns[policy.key]
        return [f"{child.table}.{child.root_key}: is of type {types[0]}, but {root.table}.{policy.key} of {types[1]}"]
    return []


def _strangers(child: Child, policy: Policy, catalog: Catalog) -> list[str]:
    """A child column that by its foreign key means something else than the root's key would take other rows along."""
    return [
        f"{child.table}.{child.root_key}: its foreign key {key.name} refers to {key.references} "
        f"({', '.join(key.referenced)}), not to {policy.root} ({policy.key})"
        for key in catalog.foreign_keys
        if key.table == child.table
        and key.columns == (child.root_key,)
        and (key.references, key.referenced) != (policy.root, (policy.key,))
    ]


def _order_mismatches(policy: Policy, catalog: Catalog) -> list[str]:
    """A table whose foreign key refuses the deletion of another's rows must come before that other one (A-02)."""
    place = {table: index for index, table in enumerate(policy.tables)}
    return [
        f"{key.table}: must be deleted before {key.references}, since its foreign key {key.name} is {key.on_delete}"
        for key in catalog.foreign_keys
        if key.refuses and place.get(key.table, -1) > place.get(key.references, len(place))
    ]


def _cascades(policy: Policy, catalog: Catalog) -> list[str]:
    """A foreign key that deletes rows of its own accord, other than those of a declared child, deletes too much."""
    declared = {(child.table, (child.root_key,)) for child in policy.children}
    return [
        f"{key.table}: its foreign key {key.name} to {key.references} is ON DELETE CASCADE and would delete rows that "
        f"the policy {policy.name} does not name; make it RESTRICT, or declare the table as a child"
        for key in catalog.foreign_keys
        if key.on_delete == "CASCADE"
        and key.references in policy.tables
        and not (key.references == policy.root and (key.table, key.columns) in declared)
    ]
