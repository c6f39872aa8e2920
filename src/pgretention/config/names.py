"""Names of settings: found whatever their case, and guessed at when misspelt."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from pgretention import FILE_VARIABLE
from pgretention.config.keys import KEYS, Key

_HINT: Final = 0.6
_MISSPELT: Final = 0.85
_ELSE: Final = "; `pgretention config` lists them all"

_BY_PATH: Final = {key.path.casefold(): key for key in KEYS}
_PATHS: Final = {path: key.path for path, key in _BY_PATH.items()}
_SECTIONS: Final = {
    ":".join(parts[:depth]).casefold(): ":".join(parts[:depth])
    for parts in (key.path.split(":") for key in KEYS)
    for depth in range(1, len(parts))
}
_LAST_NAMES: Final = {
    last: " or ".join(path for path in _PATHS.values() if path.casefold().endswith(f":{last}"))
    for last in (path.rpartition(":")[2] for path in _PATHS)
}

_TOP_SECTIONS: Final = {path: name for path, name in _SECTIONS.items() if ":" not in path}
_COMMON: Final = frozenset({"http", "host"})
_DISTINCTIVE: Final = {path: name for path, name in _TOP_SECTIONS.items() if path not in _COMMON}
"""Sections that are ours even when misspelt; HTTPS__PORT and HTTP_LISTEN are other people's variables."""
_LONE: Final = {
    FILE_VARIABLE.casefold(): FILE_VARIABLE,
    **{key.variable.casefold(): key.variable for key in KEYS if key.path.partition(":")[0].casefold() not in _COMMON},
}


def find(path: str) -> Key[Any] | None:
    """The key of that name, whatever its case."""
    return _BY_PATH.get(path.casefold())


def is_section(path: str) -> bool:
    """Whether keys stand under that name, whatever its case."""
    return path.casefold() in _SECTIONS


def hint(path: str) -> str:
    """The end of a line about a setting that does not exist: what was meant, as far as one can tell."""
    section, _, last = path.casefold().rpartition(":")
    inside = {key.casefold().rpartition(":")[2]: key for key in _PATHS.values() if _section(key) == section}
    beside = {name: known for name, known in _SECTIONS.items() if name.count(":") == path.count(":")}
    meant = (
        _closest(last, inside, _HINT)
        or _closest(path, beside, _MISSPELT)
        or _closest(path, _PATHS if not inside else {}, _HINT)
        or _closest(last, _LAST_NAMES, _HINT)
    )
    return f"; did you mean {meant}?" if meant else _ELSE


def misspelt(variable: str) -> str | None:
    """The end of a line about an environment variable that was meant for us; None when it is somebody else's.

    Ours are those in one of our sections, those in a section spelled almost like one of ours, and those
    spelled almost like a variable of ours (`PGRETENTION_CONFG`, `ActivityRetention_BatchSize`).
    """
    path = variable.replace("__", ":")
    section, nested, _ = path.partition(":")
    if not nested:
        meant = _closest(variable, _LONE, _MISSPELT)
        return f"; did you mean {meant}?" if meant and meant != variable else None
    ours = section.casefold() in _TOP_SECTIONS or _closest(section, _DISTINCTIVE, _MISSPELT)
    if ours or _closest(path, _PATHS, _MISSPELT):
        return hint(path).replace(":", "__")
    return None


def _section(path: str) -> str:
    return path.casefold().rpartition(":")[0]


def _closest(name: str, known: Mapping[str, str], cutoff: float) -> str | None:
    return next((known[match] for match in get_close_matches(name.casefold(), known, 1, cutoff)), None)
