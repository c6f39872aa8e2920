"""How a log event becomes a line: processors for structlog, each a function of one event."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pgretention.clock import Clock

Event = MutableMapping[str, Any]
Processor = Callable[[Any, str, Event], Any]
Style = Callable[[str, str], str]

_SHOWN_KEYS: Final = 10  # to a person; JSON and the result of the run have more
_BARE: Final = re.compile(r"[\w.:+/@~-]+", re.ASCII)
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_BY_LEVEL: Final = {"debug": _DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}


def head(clock: Clock) -> Processor:
    """Begin every line with when, how bad and what, so that all read the same; instants in UTC."""

    def put_first(_logger: object, level: str, event: Event) -> Event:
        said = event.pop("event")
        return {"timestamp": clock.now().isoformat(timespec="milliseconds"), "level": level, "event": said, **event}

    return put_first


def plain(_logger: object, _level: str, event: Event) -> Event:
    """Instants as ISO 8601 in UTC, lengths of time in seconds, fractions to the third digit."""
    return {key: _plain(value) for key, value in event.items()}


def _plain(value: object) -> object:
    match value:
        case datetime():
            return _in_utc(value).isoformat()
        case timedelta():
            return round(value.total_seconds(), 3)
        case float():
            return round(value, 3)
        case _:
            return value


def _in_utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:  # in the first or the last hours that Python knows
        return instant


def coloured(style: str, text: str) -> str:
    """The text in a style of the terminal."""
    return f"{style}{text}{_RESET}"


def uncoloured(_style: str, text: str) -> str:
    """The text as it is."""
    return text


def console(styled: Style) -> Processor:
    """A line that a person reads: time, level, job, event, then as key=value whatever there is to know.

    Not structlog's renderer, since that takes a field called `exception`, which a specification asks for, off the line.
    """

    def line(_logger: object, _level: str, event: Event) -> str:
        when = datetime.fromisoformat(event.pop("timestamp"))
        level, said, job = event.pop("level"), event.pop("event"), event.pop("job", None)
        known = [
            f"{styled(_DIM, f'{_word(key)}=')}{_shown(value)}"
            for key, value in event.items()
            if value is not None and value != []
        ]
        begin = [
            styled(_DIM, f"{when:%Y-%m-%d %H:%M:%SZ}"),
            styled(_BY_LEVEL.get(level, _BOLD), f"{level:<7}"),
            f"{job}: {styled(_BOLD, said)}" if job else styled(_BOLD, said),
        ]
        return "  ".join([" ".join(begin), *([" ".join(known)] if known else [])])

    return line


def _shown(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            more = len(value) - _SHOWN_KEYS
            return ",".join(_word(str(item)) for item in value[:_SHOWN_KEYS]) + (f",...+{more}" if more > 0 else "")
        case _:
            return _word(str(value))


def _word(text: str) -> str:
    """Text that cannot be taken for another part of the line, nor move the cursor of a terminal."""
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=not text.isprintable())
