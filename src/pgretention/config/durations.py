"""Lengths of time as people write them: `365.00:00:00`, `00:30:00`, `P365D`, `PT30M`, `365d`, `1h30m`.

Every form names its units. What has no fixed length (a month, a year) or no unit (a bare number) is refused,
because a retention that is read wrongly deletes rows that should have stayed.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from pgretention.errors import ConfigurationError

_NUMBER: Final = "[0-9]{1,1000}"
_CLOCK: Final = re.compile(rf"(?:(?P<d>{_NUMBER})\.)?(?P<h>[01][0-9]|2[0-3]):(?P<m>[0-5][0-9]):(?P<s>[0-5][0-9])")
_ISO: Final = re.compile(
    rf"P(?!$)(?:(?P<w>{_NUMBER})W)?(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?!$)(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)
_SHORT: Final = re.compile(
    rf"(?!$)(?:(?P<w>{_NUMBER})w)?(?:(?P<d>{_NUMBER})d)?(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?"
)
_SECONDS: Final = {"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_LONGEST: Final = timedelta.max // timedelta(seconds=1)

_ALMOST_CLOCK: Final = re.compile(r"[0-9.]+:[0-9:]+")
_BARE: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_CALENDAR: Final = re.compile(r"P.*[0-9](Y.*|M[^T]*(T.*)?)|.*[0-9] *(M|mon?(th)?s?|y(ea)?r?s?)", re.DOTALL)


def parse_duration(text: str) -> timedelta:
    """A length of time longer than zero, exact to the second.

    Three forms: [days.]hours:minutes:seconds with two digits each and no field overflowing; ISO 8601 with W,
    D, H, M and S; numbers with w, d, h, m, s, largest unit first. Raises ConfigurationError with one line
    (A-07, F-04).
    """
    match = _CLOCK.fullmatch(text) or _ISO.fullmatch(text) or _SHORT.fullmatch(text)
    if match is None:
        raise ConfigurationError([_why_not(text)])
    seconds = sum(_SECONDS[unit] * int(count) for unit, count in match.groupdict(default="0").items())
    if seconds == 0:
        raise ConfigurationError(["must be longer than zero"])
    if seconds > _LONGEST:
        raise ConfigurationError(["is too long"])
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """The `365.00:00:00` or `00:30:00` form, which parse_duration reads back; whole seconds only."""
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{duration.days}." if duration.days else ""
    return f"{days}{hours:02}:{minutes:02}:{seconds:02}"


def _why_not(text: str) -> str:
    if _BARE.fullmatch(text):
        return "a bare number has no unit; write 365d for days, 30m for minutes"
    if text.startswith("-"):
        return "must be longer than zero"
    if _CALENDAR.fullmatch(text):
        return "months and years have no fixed length; write days"
    if _ALMOST_CLOCK.fullmatch(text):
        return "hours go to 23, minutes and seconds to 59, with two digits each"
    return "is not a duration"
