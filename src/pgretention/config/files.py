"""A settings file becomes named entries; TOML, YAML and JSON agree on what they mean.

YAML is read as a tree of text, so that `no`, `00:30:00` and `1_000` are not turned into false, seconds and a
number behind somebody's back. No message repeats the text of a file: a password may stand in it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgretention.config.values import refused

if TYPE_CHECKING:
    from pathlib import Path

    import yaml

_LARGEST: Final = 65_536
_QUOTED: Final = re.compile(r"(['\"])(.*?)\1")
"""A piece of the file in a parser's message; a single character may stay, as in "expected '=' after a key"."""
_YAML_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))


@dataclass(frozen=True, slots=True)
class Table:
    """The entries of a mapping in the order of the file, those written twice included."""

    entries: tuple[tuple[str, object], ...]


def read_file(path: Path) -> Table:
    """What a settings file says, in the format its name ends in; raises ConfigurationError with one line."""
    parse = _FORMATS.get(path.suffix.lower())
    if parse is None:
        raise refused("has to end in .toml, .yaml, .yml or .json")
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise refused("is not a file")
        if about.st_size > _LARGEST:
            raise refused(f"is larger than {_LARGEST} bytes")
        source = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refused("is not UTF-8") from None
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a null character in the path
        raise refused("cannot be read: no such file") from None
    try:
        tree = parse(source)
    except RecursionError:
        raise refused("is nested too deeply") from None
    if not isinstance(tree, Table):
        raise refused("has to hold named settings at its top level")
    return tree


def _toml(source: str) -> object:
    import tomllib  # noqa: PLC0415  only the format that is used is loaded

    try:
        return _as_table(tomllib.loads(source))
    except tomllib.TOMLDecodeError as error:
        raise refused(f"is not valid TOML: {_without_quotes(str(error))}") from None
    except ValueError:
        raise refused("is not valid TOML: a number is too long") from None


def _as_table(value: object) -> object:
    if isinstance(value, dict):
        return Table(tuple((name, _as_table(entry)) for name, entry in value.items()))
    return value


def _json(source: str) -> object:
    import json  # noqa: PLC0415  as above

    try:
        return json.loads(source, object_pairs_hook=lambda pairs: Table(tuple(pairs)))
    except json.JSONDecodeError as error:
        raise refused(f"is not valid JSON: {error.msg} (at line {error.lineno}, column {error.colno})") from None
    except ValueError:
        raise refused("is not valid JSON: a number is too long") from None


def _yaml(source: str) -> object:
    import yaml  # noqa: PLC0415  as above

    try:
        root = yaml.compose(source, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise refused(f"is not valid YAML: {_without_quotes(error.problem or 'syntax error')}{where}") from None
    except yaml.YAMLError:
        raise refused("is not valid YAML: it holds a character that YAML does not allow") from None
    return Table(()) if root is None else _plain(root, set())


def _plain(node: yaml.Node, seen: set[int]) -> object:
    """Tables, lists and text; each node once, as aliases of aliases are soon more than memory holds."""
    import yaml  # noqa: PLC0415  as above

    if id(node) in seen:
        raise refused(f"uses a YAML alias (of line {node.start_mark.line + 1}); write the value out")
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        entries: list[tuple[str, object]] = []
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise refused(f"has a name that is not text at line {name.start_mark.line + 1}")
            entries.append((str(name.value), _plain(value, seen)))
        return Table(tuple(entries))
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, seen) for item in node.value]
    value = str(node.value)
    is_bare = isinstance(node, yaml.ScalarNode) and node.style is None
    return None if is_bare and value in _YAML_NULL else value


def _without_quotes(problem: str) -> str:
    return _QUOTED.sub(lambda piece: piece[0] if len(piece[2]) == 1 else "…", problem)


_FORMATS: Final[dict[str, Callable[[str], object]]] = {
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
}
