"""One strict reader for each kind of value: it takes what a source gave, or refuses with one line.

Text and native values mean the same wherever both exist: `true` and `"true"`, `365` and `"365"`. Nothing is
trimmed, rounded or guessed: text with blanks or quotes around it is refused and the line says so.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeVar

from pgretention.config.durations import format_duration, parse_duration
from pgretention.errors import ConfigurationError
from pgretention.schedule import check_cron, check_zone

T = TypeVar("T")

_KINDS: Final[dict[type, str]] = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
_SHOWN: Final = 40
_LOOKS_SECRET: Final = re.compile("://|@|passw|pwd|secret", re.IGNORECASE)
_WHOLE: Final = re.compile("-?(0|[1-9][0-9]*)")
_DIGITS: Final = 18
_MILLISECONDS: Final = re.compile("([1-9][0-9]{0,8})ms")
_SIZE: Final = re.compile("([1-9][0-9]{0,5})(kB|MB|GB)")
_UNITS: Final = {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%")
_OFF: Final = "off"
_URL: Final = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~/-]*)?")
_PATH: Final = re.compile(r"""[^\s=@:;'"]+""")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=!@#$%^&*:-]+")
_SHORTEST_TOKEN: Final = 16
_LABEL: Final = "[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_PORT: Final = re.compile("[1-9][0-9]{0,4}")
_PORTS: Final = range(1, 65536)


def refused(why: str) -> ConfigurationError:
    """The error of one value: the reason alone, the caller adds which setting and from where."""
    return ConfigurationError([why])


def text(raw: object) -> str:
    """Printable text without blanks or quotes around it."""
    if raw is None:
        raise refused("is null; give it a value or leave it out")
    if isinstance(raw, (date, time)):
        raise refused("is a TOML date or time; put quotes around it")
    if not isinstance(raw, str):
        raise refused(f"cannot be {_KINDS.get(type(raw), 'a table')}")
    if not raw:
        raise refused("is empty; give it a value or leave it out")
    if not raw.isprintable():
        raise refused("contains a character that cannot be printed, such as a line break")
    if raw != raw.strip():
        raise refused("has blanks around it; remove them")
    if raw[0] in "'\"" and raw[0] == raw[-1]:
        raise refused("the quotes are part of the value; remove them")
    return raw


def quoted(value: str) -> str:
    """A value for a message: short, and hidden when it looks like a connection string in the wrong place."""
    if _LOOKS_SECRET.search(value):
        return "the value (not shown)"
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def boolean(raw: object) -> bool:
    """`true` or `false` in any case, or the native value; `yes`, `on` and `1` are refused."""
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, (int, float)):
        raise refused("cannot be a number")
    word = text(raw)
    if word.lower() not in ("true", "false"):
        raise refused(f"{quoted(word)} is neither true nor false")
    return word.lower() == "true"


def whole(low: int, high: int) -> Callable[[object], int]:
    """A whole number within bounds, as plain decimal digits."""

    def read(raw: object) -> int:
        if isinstance(raw, float):
            raise refused("is not a whole number")
        number = raw if isinstance(raw, int) and not isinstance(raw, bool) else _number(text(raw))
        if not low <= number <= high:
            raise refused("is out of range")
        return number

    return read


def _number(digits: str) -> int:
    if not _WHOLE.fullmatch(digits):
        raise refused(f"{quoted(digits)} is not a whole number")
    if len(digits) > _DIGITS:
        raise refused("is out of range")
    return int(digits)


def days(low: int, high: int) -> Callable[[object], timedelta]:
    """A whole number of days within bounds."""
    number = whole(low, high)
    return lambda raw: timedelta(days=number(raw))


def duration(longest: timedelta) -> Callable[[object], timedelta]:
    """A length of time with its unit, longer than zero and no longer than the longest."""

    def read(raw: object) -> timedelta:
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            raise refused("a bare number has no unit; write 365d for days, 30m for minutes")
        written = text(raw)
        try:
            length = parse_duration(written)
        except ConfigurationError as error:
            raise refused(f"{quoted(written)}: {error}") from None
        if length > longest:
            raise refused(f"{quoted(written)} is longer than {format_duration(longest)}")
        return length

    return read


def moment(longest: timedelta) -> Callable[[object], timedelta]:
    """A length of time as `duration` reads it, or whole milliseconds: `250ms`."""
    longer = duration(longest)

    def read(raw: object) -> timedelta:
        milliseconds = _MILLISECONDS.fullmatch(raw) if isinstance(raw, str) else None
        if milliseconds is None:
            return longer(raw)
        length = timedelta(milliseconds=int(milliseconds[1]))
        if length > longest:
            raise refused(f"{quoted(milliseconds[0])} is longer than {format_duration(longest)}")
        return length

    return read


def format_moment(length: timedelta) -> str:
    """The form that `moment` reads back."""
    return f"{length // timedelta(milliseconds=1)}ms" if length.microseconds else format_duration(length)


def size(raw: object) -> int:
    """Bytes, written with a unit of PostgreSQL's: `20MB`."""
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        raise refused("a bare number has no unit; write 20MB")
    written = text(raw)
    parts = _SIZE.fullmatch(written)
    if parts is None:
        raise refused(f"{quoted(written)} is not a size")
    return int(parts[1]) * _UNITS[parts[2]]


def format_size(count: int) -> str:
    """The form that `size` reads back."""
    unit = max((unit for unit, factor in _UNITS.items() if count % factor == 0), key=_UNITS.__getitem__)
    return f"{count // _UNITS[unit]}{unit}"


def share(raw: object) -> float:
    """A part of a whole, above 0 and at most 1, written in percent: `25%`."""
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        raise refused("a bare number has no unit; write 25%")
    written = text(raw)
    parts = _PERCENT.fullmatch(written)
    if parts is None or not 0 < float(parts[1]) <= 100:  # noqa: PLR2004  of a hundred
        raise refused(f"{quoted(written)} is not a percentage above 0% and up to 100%")
    return float(parts[1]) / 100


def format_share(part: float) -> str:
    """The form that `share` reads back."""
    return f"{part * 100:.6g}%"


def unless_off(read: Callable[[object], T]) -> Callable[[object], T | None]:
    """What `read` reads, or None for `off`."""

    def read_or_off(raw: object) -> T | None:
        if raw is False:
            raise refused('write "off" to switch it off')
        return None if raw == _OFF else read(raw)

    return read_or_off


def some_of(allowed: Iterable[str]) -> Callable[[object], frozenset[str]]:
    """Some of these words, with commas between them; none for `off`."""
    known = frozenset(allowed)

    def read(raw: object) -> frozenset[str]:
        if raw is False:
            raise refused('write "off" for none of them')
        words = text(raw).split(",") if raw != _OFF else []
        for word in words:
            if word.strip() not in known:
                near = get_close_matches(word.strip(), sorted(known), 1)
                raise refused(f"{quoted(word.strip())} is none of them{f'; did you mean {near[0]}?' if near else ''}")
        return frozenset(word.strip() for word in words)

    return read


@dataclass(frozen=True, slots=True)
class AccessToken:
    """What whoever looks at the page has to show, kept out of everything that is shown; None shows it to everybody."""

    _whole: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return _OFF if self._whole is None else "***"

    def reveal(self) -> str | None:
        """The token as it was given, to compare with and for nothing else."""
        return self._whole


def access_token(raw: object) -> AccessToken:
    """A token long enough not to be guessed, or `off`."""
    if raw is False:
        raise refused('write "off" to ask nobody for a token')
    if raw == _OFF:
        return AccessToken()
    written = text(raw)
    if not _TOKEN.fullmatch(written):
        raise refused("the value (not shown) has a character that cannot stand in a token")
    if len(written) < _SHORTEST_TOKEN:
        raise refused(f"the value (not shown) is shorter than {_SHORTEST_TOKEN} characters")
    return AccessToken(written)


def host_names(raw: object) -> frozenset[str]:
    """Names of hosts, without ports, with commas between them; none for `off`."""
    if raw is False:
        raise refused('write "off" for none')
    words = [word.strip() for word in text(raw).split(",")] if raw != _OFF else []
    for word in words:
        if not _HOST.fullmatch(word):
            raise refused(f"{quoted(word)} is no name of a host; it stands without a port")
    return frozenset(word.lower() for word in words)


def path(raw: object) -> Path:
    """The path of a file, with nothing in it that a connection string in the wrong place would have."""
    written = text(raw)
    if not _PATH.fullmatch(written):
        raise refused(f"{quoted(written)} is no plain path of a file: leave out blanks, quotes and any of = @ : ;")
    with suppress(OSError):  # it is somebody else's, and only a worker opens it
        if Path(written).is_dir():
            raise refused(f"{quoted(written)} is a folder; name a file in it")
    return Path(written)


def web_address(raw: object) -> str:
    """An http or https URL without a user, a query or a fragment."""
    written = text(raw)
    if not _URL.fullmatch(written):
        raise refused(f"{quoted(written)} is no http:// or https:// address without a user")
    return written


def cron(raw: object) -> str:
    """Cron text that fires; see Schedule."""
    written = text(raw)
    check_cron(written)
    return written


def zone(raw: object) -> str:
    """A full IANA zone name; see Schedule."""
    written = text(raw)
    check_zone(written)
    return written


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where to listen: a host name or address without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen(raw: object) -> HostPort | None:
    """`host:port`, an IPv6 address in brackets; None for `off` (H-06)."""
    if isinstance(raw, bool):
        raise refused('write "off" to listen nowhere')
    written = text(raw)
    if written == "off":
        return None
    host, _, port = written.rpartition(":")
    if not _PORT.fullmatch(port) or int(port) not in _PORTS:
        raise refused(f"{quoted(written)} has no port from 1 to 65535")
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        raise refused(f"{quoted(written)} is not host:port; an IPv6 address stands in brackets, as in [::1]:9477")
    if not bracketed and not _HOST.fullmatch(host):
        raise refused(f"{quoted(written)} names no host; 0.0.0.0 and [::] stand for every address")
    if not bracketed and not host.replace(".", "").isdigit():
        return HostPort(host, int(port))
    try:
        return HostPort(str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), int(port))
    except ValueError:
        raise refused(f"{quoted(written)} has no IP address") from None
