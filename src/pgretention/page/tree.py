"""The foreign keys around a policy as a picture: boxes and arrows with their places, which a template draws.

The root stands on top, the tables that go with it below in delete order, and with them the tables that no policy names
and that refer to the root alone; those that refer to others stand below. An arrow goes from the referencing table to
the one it refers to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgretention.page.words import count
from pgretention.policy import Policy, Table
from pgretention.preflight import Reference

WIDTH, HEIGHT = 292, 62
_GAP, _ROOM, _EDGE, _LANE = 40, 84, 30, 26
_NAME, _ABOUT, _LABEL, _LETTER = 36, 42, 26, 6.4
"""How many letters fit into a box and onto an arrow, and how wide a small one is."""


@dataclass(frozen=True, slots=True)
class Box:
    """A table. `order` is its place in delete order, None where the policy does not name it."""

    table: str
    name: str
    about: str
    order: int | None
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """A foreign key: a path for the line, and where its words stand. `fatal` when it keeps a run from beginning."""

    path: str
    text: str
    x: int
    y: int
    name: str
    declared: bool
    fatal: bool


@dataclass(frozen=True, slots=True)
class Key:
    """The same in words, for a table beside the picture."""

    name: str
    source: str
    target: str
    action: str
    meaning: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """The picture, its size and its keys in words."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    keys: tuple[Key, ...]


def tree(policy: Policy, references: Sequence[Reference]) -> Tree:
    """The picture of a policy and of the foreign keys that its deletions meet."""
    rows = [row for row in _rows(policy, references) if row]
    depths = {table: depth for depth, row in enumerate(rows) for table in row}
    lanes = [
        sum(_beside(key, depths) and depths[key.table] == depth for key in references) for depth in range(len(rows))
    ]
    width = max(len(row) for row in rows) * (WIDTH + _GAP) - _GAP + 2 * _EDGE
    boxes, y = {}, _EDGE
    for row, beside in zip(rows, lanes, strict=True):
        left = (width - (len(row) * (WIDTH + _GAP) - _GAP)) // 2
        for place, table in enumerate(row):
            boxes[table] = _box(policy, table, references, left + place * (WIDTH + _GAP), y)
        y += HEIGHT + beside * _LANE + _ROOM
    return Tree(
        width,
        y - _ROOM + _EDGE // 2,
        tuple(boxes.values()),
        tuple(_arrows(policy, references, boxes, depths)),
        tuple(_key(policy, key) for key in references),
    )


def _rows(policy: Policy, references: Sequence[Reference]) -> tuple[list[Table], list[Table], list[Table]]:
    beside = [child.table for child in policy.children]
    below: list[Table] = []
    for table in dict.fromkeys(key.table for key in references if key.table not in policy.tables):
        alone = all(key.references == policy.root for key in references if key.table == table)
        (beside if alone else below).append(table)
    return [policy.root], beside, below


def _beside(key: Reference, depths: dict[Table, int]) -> bool:
    """Whether it goes from a table to another one of the same row."""
    return key.table != key.references and depths[key.table] == depths[key.references]


def _box(policy: Policy, table: Table, references: Iterable[Reference], x: int, y: int) -> Box:
    order = policy.tables.index(table) + 1 if table in policy.tables else None
    if order is None:
        rows = max(key.rows for key in references if key.table == table)
        about = f"not in the policy, about {count(rows, 'row')}"
    elif table == policy.root:
        about = f"deleted {_th(order)}, by {policy.expiry}"
    else:
        about = f"deleted {_th(order)}, with its {policy.root.name}"
    return Box(str(table), shortened(str(table), _NAME), shortened(about, _ABOUT), order, x, y)


def _arrows(
    policy: Policy, references: Sequence[Reference], boxes: dict[Table, Box], depths: dict[Table, int]
) -> Iterable[Arrow]:
    used: Counter[int] = Counter()
    seen: Counter[tuple[Table, bool]] = Counter()
    for key in references:
        source, target = boxes[key.table], boxes[key.references]
        again = seen[key.table, source is target]
        seen[key.table, source is target] += source.y != target.y or source is target
        words = f"{', '.join(key.columns)}: {key.on_delete}"
        text = shortened(words, _LABEL)
        middle = source.x + WIDTH // 2
        if source is target:
            path = f"M {source.x + WIDTH - 48} {source.y} q 17 -32 34 0"
            x, y = round(source.x + WIDTH - 52 - len(text) * _LETTER / 2), source.y - 8 - 14 * again
        elif source.y == target.y:
            used[source.y] += 1
            lane = used[source.y]
            y = source.y + HEIGHT + _LANE * lane
            aside = 14 * lane if source.x > target.x else -14 * lane
            start, end = middle + aside, target.x + WIDTH // 2 - aside
            path = f"M {start} {source.y + HEIGHT} V {y} H {end} V {target.y + HEIGHT}"
            text = shortened(words, int(abs(start - end) / _LETTER))
            x, y = (start + end) // 2, y - 5
        elif source.y < target.y:
            path = f"M {source.x + WIDTH - 24} {source.y + HEIGHT} L {target.x + WIDTH - 24} {target.y}"
            x, y = source.x + WIDTH - 24, source.y + HEIGHT + 20 + 18 * again
        else:
            path = f"M {middle} {source.y}"
            if depths[key.table] > depths[key.references] + 1:
                path += _through(middle, [boxes[table] for table in boxes if depths[table] == 1])
            path += f" L {_landing(key, references, boxes)} {target.y + HEIGHT}"
            x, y = middle, source.y - 14 - 18 * again
        yield Arrow(path, text, x, y, key.name, _declared(policy, key), _fatal(policy, key))


def _landing(key: Reference, references: Iterable[Reference], boxes: dict[Table, Box]) -> int:
    """Where on the lower edge of its target an arrow from below ends: side by side, in the order of the sources."""
    target = boxes[key.references]
    meeting = [each for each in references if each.references == key.references and boxes[each.table].y > target.y]
    meeting.sort(key=lambda each: boxes[each.table].x)
    return target.x + WIDTH * (meeting.index(key) + 1) // (len(meeting) + 1)


def _through(middle: int, row: Sequence[Box]) -> str:
    """A way between the boxes of a row, or past them, that is near."""
    ways = [box.x - _GAP // 2 for box in row] + [row[-1].x + WIDTH + _GAP // 2]
    way = min(ways, key=lambda x: abs(x - middle))
    return f" L {way} {row[0].y + HEIGHT + 8} V {row[0].y - 8}"


def _key(policy: Policy, key: Reference) -> Key:
    return Key(
        key.name,
        f"{key.table} ({', '.join(key.columns)})",
        str(key.references),
        f"ON DELETE {key.on_delete}",
        _meaning(policy, key),
        _fatal(policy, key),
    )


def _meaning(policy: Policy, key: Reference) -> str:
    slow = "" if key.indexed else " No index: every deletion reads the whole table."
    inside = key.table in policy.tables
    match key.on_delete:
        case "CASCADE" if _fatal(policy, key):
            return f"Deletes rows that the policy does not name: no run begins.{slow}"
        case "SET NULL" | "SET DEFAULT" if not inside:
            return f"A run changes rows of a table that the policy does not name.{slow}"
        case "SET NULL" | "SET DEFAULT":
            return f"Nothing is left to change, since both sides go in the same batch.{slow}"
        case _ if inside and key.table != key.references:
            return f"Its rows go first, so nothing is in the way.{slow}"
        case _:
            return f"Rows that it refers to stay, and the run is partial.{slow}"


def _fatal(policy: Policy, key: Reference) -> bool:
    return key.on_delete == "CASCADE" and not _declared(policy, key)


def _declared(policy: Policy, key: Reference) -> bool:
    """Whether the policy deletes what this key refers from together with what it refers to."""
    children = {(child.table, (child.root_key,)) for child in policy.children}
    return key.references == policy.root and (key.table, key.columns) in children


def shortened(text: str, most: int) -> str:
    """A text of so many letters at most."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _th(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
