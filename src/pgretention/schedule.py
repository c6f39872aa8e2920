"""Cron text and a zone become instants; there is no clock in here.

cronsim reads the text and walks the wall clock. How a time on the wall becomes an instant is ours: cronsim's
own zone handling loses times where the clock moves by half an hour (Australia/Lord_Howe), fires twice on the
day after a gap that ends at midnight (America/Nuuk), and runs on a date that never was (Pacific/Apia, 30
December 2011).

* A fixed time (neither minute nor hour starts with `*`) runs once on every matching date. In an overlap that
  is in the first pass. A time that the clock skips runs when the gap ends or, when that is already tomorrow,
  in the last minute before it.
* A repeated time (`*/5 * * * *`) follows real time: in both passes of an overlap, never inside a gap.

All arithmetic is done in UTC: adding a timedelta to a zoned datetime moves the wall clock, not time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from pgretention.errors import ConfigurationError

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_ANY_DATE = datetime(2024, 1, 1)  # noqa: DTZ001  a time on the wall has no zone
_WITH_SECONDS = 6
_NEAR = 0.8
_BOUNDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31",
    "month": "1 to 12",
    "day-of-week": "0 to 7",
}
"""The fields as cronsim calls them."""
_ALIASES = ("posix/", "right/")
"""Copies of the database that some systems have; `right/` counts leap seconds, we and PostgreSQL do not."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job runs; cannot be built from text that never fires or from a zone that is not one.

    `text` is five cron fields, or six with the seconds first (A-08); the seconds are a plain number. 0 and 7 are both
    Sunday. A day of month and a weekday together mean either of them; neither may begin with `*` then. `zone` is UTC
    or an IANA name such as Europe/Moscow. Raises ConfigurationError with one line.
    """

    text: str
    zone: str

    def __post_init__(self) -> None:
        check_cron(self.text)
        check_zone(self.zone)

    @classmethod
    def parse(cls, text: str, zone: str) -> Schedule:
        """A schedule from what somebody wrote."""
        return cls(text, zone)

    def next_after(self, instant: datetime) -> datetime:
        """The first run strictly after an aware instant, in UTC; nothing between the two is skipped."""
        if instant.tzinfo is None:
            raise ValueError("next_after needs an aware datetime")
        seconds, cron = _split(self.text)
        start = instant.astimezone(UTC) - seconds
        following = _next_fixed if _is_fixed(cron) else _next_repeated
        return following(cron, ZoneInfo(self.zone), start) + seconds

    def words(self) -> str:
        """The schedule in English, with its zone: `At 03:00 every day, Europe/Moscow`."""
        seconds, cron = _split(self.text)
        past = f", {seconds.seconds} seconds past the minute" if seconds else ""
        return f"{CronSim(cron, _ANY_DATE).explain()}{past}, {self.zone}"


def check_cron(text: str) -> None:
    """Refuse cron text that cannot be read or that never fires."""
    fields = text.split()
    if not fields:
        raise ConfigurationError(["the schedule is empty; write five cron fields such as 0 3 * * *"])
    if fields[0][0] in "'\"":
        raise ConfigurationError(["the quotes are part of the schedule; remove them"])
    if fields[0].startswith("@"):
        raise ConfigurationError(["names such as @daily are not read; write five cron fields such as 0 3 * * *"])
    if len(fields) not in (_WITH_SECONDS - 1, _WITH_SECONDS):
        raise ConfigurationError([f"a schedule has 5 fields, or 6 with the seconds first; this one has {len(fields)}"])
    if len(fields) == _WITH_SECONDS and not re.fullmatch("[0-5]?[0-9]", fields[0]):
        raise ConfigurationError(["the first of six fields is the second: one plain number, 0 to 59"])
    if "?" in text:
        raise ConfigurationError(["? is not a cron field here; write *"])
    _check_days(_split(text)[1])
    try:
        next(CronSim(_split(text)[1], _ANY_DATE))
    except StopIteration:
        raise ConfigurationError(["the schedule never fires: no such date exists"]) from None
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        bounds = f", {_BOUNDS[field]}" if field in _BOUNDS else ""
        raise ConfigurationError(
            [f"the {field} field of the schedule{bounds}, is wrong or no such date exists"]
        ) from None
    except ValueError:  # a number too long for int()
        raise ConfigurationError(["a number in the schedule is too long"]) from None


def _check_days(cron: str) -> None:
    """Refuse what other crons read as a day that has to meet both fields, since here one of them is enough."""
    _, _, day, _, weekday = cron.split()
    if "*" not in (day, weekday) and (day.startswith("*") or weekday.startswith("*")):
        raise ConfigurationError(
            ["day of month and weekday are both given and one begins with *; write a range such as 1-31/2"]
        )


def check_zone(name: str) -> None:
    """Refuse a zone that is not UTC or a full IANA name; an abbreviation stands for several offsets."""
    if not _is_zone(name):
        known = {zone.casefold(): zone for zone in available_timezones() if "/" in zone or zone == "UTC"}
        near = get_close_matches(name.casefold(), known, 1, _NEAR)
        hint = f"; did you mean {known[near[0]]}?" if near else ""
        raise ConfigurationError([f"not a full IANA name{hint}"])


def _is_zone(name: str) -> bool:
    if name == "UTC" or "/" not in name or name.startswith(_ALIASES):
        return name == "UTC"
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a folder; a path out of the database; not found
        return False
    return True


def _split(text: str) -> tuple[timedelta, str]:
    """The seconds to add to every run, and the five fields cronsim has its day rules for."""
    fields = text.split()
    seconds = int(fields.pop(0)) if len(fields) == _WITH_SECONDS else 0
    return timedelta(seconds=seconds), " ".join(fields)


def _is_fixed(cron: str) -> bool:
    minute, hour, *_ = cron.split()
    return not (minute.startswith("*") or hour.startswith("*"))


def _next_fixed(cron: str, zone: ZoneInfo, start: datetime) -> datetime:
    """The first run after the start when each matching wall clock time has exactly one instant."""
    for wall in CronSim(cron, _wall(start, zone)):
        run = _instant(wall, zone)
        if run is not None and run > start:
            return run
    raise AssertionError(f"{cron} was found to fire when the schedule was built")


def _instant(wall: datetime, zone: ZoneInfo) -> datetime | None:
    """The instant a fixed time stands for, see the module's text; None when the whole date does not exist."""
    for step in (_MINUTE, -_MINUTE):
        shown = wall
        while not _exists(shown, zone):
            shown += step
        if shown.date() == wall.date():
            return shown.replace(tzinfo=zone).astimezone(UTC)
    return None


def _next_repeated(cron: str, zone: ZoneInfo, start: datetime) -> datetime:
    """The first instant after the start at which the wall shows a matching time; one day of real time after
    the other.

    Within a day the clock moves once at most, so the offsets at its two ends are all the offsets it has: walk
    the wall clock under each, keep what is really shown then, and take the earlier.
    """
    while True:
        end = start + _DAY
        runs: list[datetime] = []
        for offset in {_offset(start, zone), _offset(end, zone)}:
            for wall in CronSim(cron, (start + offset).replace(tzinfo=None)):
                run = wall.replace(tzinfo=UTC) - offset
                if run > end:
                    break
                if _offset(run, zone) == offset:
                    runs.append(run)
                    break
        if runs:
            return min(runs)
        start = end


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def _exists(wall: datetime, zone: ZoneInfo) -> bool:
    return _wall(wall.replace(tzinfo=zone).astimezone(UTC), zone) == wall


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta()
