"""Where settings come from: each source yields what it gives and, as text, what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgretention.config.files import Table, read_file
from pgretention.config.keys import Key
from pgretention.config.names import find, hint, is_section, misspelt
from pgretention.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

_FLAG: Final = "--set"
_NAME: Final = re.compile("[A-Za-z0-9_:. -]{1,100}")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as a source gave it: text from the environment and flags, native values from files."""

    key: Key[Any]
    raw: object
    source: str


Reading = Iterator[Given | str]


def from_file(path: Path) -> Reading:
    """The settings of a file, `:` and nesting alike."""
    source = f"file {_printable(str(path))}"
    try:
        table = read_file(path)
    except ConfigurationError as error:
        yield f"{source}: {error}"
    else:
        yield from _once(_entries(table, "", source))


def from_environment(environ: Mapping[str, str]) -> Reading:
    """The settings of variables such as ActivityRetention__BatchSize; variables of others are left alone."""
    yield from _once(_variables(environ))


def from_flags(overrides: Sequence[str]) -> Reading:
    """The settings of `--set Key:Path=value`."""
    yield from _once(_flags(overrides))


def _once(reading: Iterable[Given | str]) -> Reading:
    """The same, with a problem for each setting that one source gives twice, in whatever spelling."""
    first: dict[str, Given] = {}
    for item in reading:
        if isinstance(item, str):
            yield item
        elif item.key.path in first:
            other = first[item.key.path].source
            also = f", also by {other}" if other != item.source else ""
            yield f"{item.key.path} ({item.source}): given twice{also}; keep one"
        else:
            first[item.key.path] = item
            yield item


def _entries(table: Table, prefix: str, source: str) -> Reading:
    for name, value in table.entries:
        path = f"{prefix}{name}"
        if key := find(path):
            yield Given(key, value, source)
        elif not is_section(path):
            yield _unknown(path, source)
        elif isinstance(value, Table):
            yield from _entries(value, f"{path}:", source)
        else:
            yield f"{path} ({source}): is a section; put settings in it or leave it out"


def _variables(environ: Mapping[str, str]) -> Reading:
    for name, value in sorted(environ.items()):
        if key := find(name.replace("__", ":")):
            yield Given(key, value, f"environment {name}")
        elif (meant := misspelt(name)) is not None:
            yield f"{_printable(name)} (environment): no such setting{meant}"


def _flags(overrides: Sequence[str]) -> Reading:
    for number, override in enumerate(overrides, 1):
        path, equals, value = override.partition("=")
        if not equals:
            yield f"{_FLAG} (number {number}): has no =; write it as {_FLAG} ActivityRetention:BatchSize=1000"
        elif key := find(path):
            yield Given(key, value, _FLAG)
        else:
            yield _unknown(path, _FLAG)


def _unknown(path: str, source: str) -> str:
    """A name may be a password in the wrong place: what does not look like a name is not repeated."""
    name = path if _NAME.fullmatch(path) else "a name that is not shown"
    return f"{name} ({source}): no such setting{hint(path)}"


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
