"""Connection strings: checked by libpq, kept out of everything that is shown.

libpq's own messages quote the string, password included, so none is passed on: what went wrong is said in our
words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from pgretention.config.values import refused, text

_HARMLESS: Final = (
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "service",
    "sslmode",
    "target_session_attrs",
    "connect_timeout",
)
"""Options whose values may be shown; a list of what is secret would miss the next one libpq invents."""
_NESTED: Final = re.compile("[@=]|://")
"""A value that is a connection string itself, or a piece of one that was split in the wrong place."""
_URI: Final = re.compile("postgres(ql)?://")
_PORT: Final = re.compile("[1-9][0-9]{0,4}|")
_UNKNOWN_OPTION: Final = re.compile('invalid (?:connection option|URI query parameter:) "(.*)"')
_OPTION: Final = re.compile("[A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A libpq connection string that shows itself without its secrets; `reveal` gives it whole."""

    shown: str
    _whole: str = field(repr=False)

    def __str__(self) -> str:
        return self.shown

    def reveal(self) -> str:
        """The string as it was given, for psycopg and for nothing else."""
        return self._whole


def connection_string(raw: object) -> ConnectionString:
    """A libpq URI or key=value string; see PostgreSQL documentation, Connection Strings."""
    from psycopg import ProgrammingError  # noqa: PLC0415  slow to load, and only a given string needs it
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415  as above

    whole = text(raw)
    try:
        options = {name: str(value) for name, value in conninfo_to_dict(whole).items()}
    except ProgrammingError as error:
        raise refused(_why_not(whole, str(error))) from None
    if _URI.match(whole) and any("@" in options.get(name, "") for name in ("host", "port", "dbname")):
        raise refused("an @ or / in the user or password of a URI has to be written as %40 or %2F")
    if not all(_PORT.fullmatch(port) for port in options.get("port", "").split(",")):
        raise refused("the port is not a number; a / in the user or password of a URI has to be written as %2F")
    order = [name for name in _HARMLESS if name in options] + sorted(options.keys() - set(_HARMLESS))
    shown = {name: options[name] if _may_be_shown(name, options[name]) else "***" for name in order}
    return ConnectionString(make_conninfo("", **shown) or "libpq environment", whole)


def _may_be_shown(name: str, value: str) -> bool:
    return name in _HARMLESS and not _NESTED.search(value)


def _why_not(whole: str, libpq: str) -> str:
    if ";" in whole and not _URI.match(whole):
        return "looks like an Npgsql string; libpq wants blanks between options, as in host=… dbname=… user=…"
    if "://" in whole and not _URI.match(whole):
        return "a URI starts with postgresql://"
    unknown = _UNKNOWN_OPTION.search(libpq)
    if unknown is None:
        return "is neither a libpq URI nor key=value"
    option = unknown[1]
    near = get_close_matches(option, _options(), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    before, found, after = whole.partition(f"{option}=")
    if not found or not _OPTION.fullmatch(option) or "pass" in before or "@" in after:
        # It may be the rest of a password.
        return f"has an option that libpq does not know{hint}"
    return f"libpq knows no option {option}{hint}"


def _options() -> list[str]:
    from psycopg.pq import Conninfo  # noqa: PLC0415  as above

    return [option.keyword.decode() for option in Conninfo.get_defaults()]
