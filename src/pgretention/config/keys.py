"""Every setting there is: its name, default and bounds, and what the reference page says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pgretention.config.connection import ConnectionString, connection_string
from pgretention.config.durations import format_duration
from pgretention.config.values import (
    AccessToken,
    HostPort,
    access_token,
    boolean,
    cron,
    days,
    duration,
    format_moment,
    format_share,
    format_size,
    host_names,
    listen,
    moment,
    path,
    share,
    size,
    some_of,
    unless_off,
    web_address,
    whole,
    zone,
)
from pgretention.job import MOST_WORKERS, Brake

T = TypeVar("T")

_CENTURY: Final = timedelta(days=36500)
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_WEEK: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One setting. `accepts` completes the line "allowed: …"; `about` is its line of the reference page."""

    path: str
    default: T
    read: Callable[[object], T]
    show: Callable[[T], str]
    accepts: str
    about: str

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return self.path.replace(":", "__")


def _on_off(path: str, about: str) -> Key[bool]:
    accepts = "true or false"
    return Key(path, read=boolean, default=True, show=lambda on: str(on).lower(), accepts=accepts, about=about)


def _whole(path: str, default: int, high: int, about: str) -> Key[int]:
    return Key(path, default, whole(1, high), str, f"a whole number, 1 to {high}", about)


def _duration(path: str, default: timedelta, most: timedelta, allowed: str, about: str) -> Key[timedelta]:
    return Key(path, default, duration(most), format_duration, f"a duration such as {allowed}", about)


def _retention(path: str, default: timedelta, about: str) -> Key[timedelta]:
    return _duration(path, default, _CENTURY, f"365.00:00:00, P365D or 365d, up to {_CENTURY.days} days", about)


def _limit(path: str, default: timedelta, about: str) -> Key[timedelta]:
    return _duration(path, default, _WEEK, f"00:30:00, PT30M or 1h30m, up to {_WEEK.days} days", about)


def _cron(path: str, default: str, about: str) -> Key[str]:
    return Key(path, default, cron, str, "five cron fields, or six with the seconds first", about)


def _zone(path: str, default: str, about: str) -> Key[str]:
    return Key(path, default, zone, str, "UTC or an IANA name such as Europe/Moscow", about)


def _shown_connection(value: ConnectionString | None) -> str:
    return "libpq environment" if value is None else value.shown


def _connection(path: str, about: str) -> Key[ConnectionString | None]:
    accepts = "a libpq URI or key=value string"
    return Key(path, None, connection_string, _shown_connection, accepts, about)


def _unless_off(
    path: str, read: Callable[[object], T], show: Callable[[T], str], accepts: str, about: str
) -> Key[T | None]:
    """A setting that is off by default."""
    return Key(
        path, None, unless_off(read), lambda value: "off" if value is None else show(value), f"{accepts}, or off", about
    )


def _moment(path: str, most: timedelta, most_words: str, about: str) -> Key[timedelta | None]:
    return _unless_off(
        path, moment(most), format_moment, f"a duration such as 250ms, 5s or 1m, up to {most_words}", about
    )


@dataclass(frozen=True, slots=True)
class PaceKeys:
    """How much the runs of a job hold back for others."""

    pause: Key[timedelta | None]
    replica_lag: Key[timedelta | None]
    wal_rate: Key[int | None]
    batch_duration: Key[timedelta | None]


@dataclass(frozen=True, slots=True)
class SafetyKeys:
    """When the runs of a job are refused."""

    expired_rows: Key[int | None]
    expired_share: Key[float | None]
    retention: Key[timedelta | None]


def _pace(section: str) -> PaceKeys:
    return PaceKeys(
        _moment(f"{section}:BatchPause", _HOUR, "1 hour", "A wait between two batches of a connection."),
        _moment(
            f"{section}:MaxReplicaLag",
            _HOUR,
            "1 hour",
            "A run waits while a streaming replica is further behind. The role needs pg_monitor to see that.",
        ),
        _unless_off(
            f"{section}:MaxWalRate",
            size,
            format_size,
            "a size such as 20MB",
            "A run waits until the server's WAL of its batches is below so many bytes a second on average.",
        ),
        _moment(
            f"{section}:TargetBatchDuration",
            _HOUR,
            "1 hour",
            "Batches get smaller until they take no longer, and larger again, up to BatchSize, once they are fast.",
        ),
    )


def _safety(section: str) -> SafetyKeys:
    return SafetyKeys(
        _unless_off(
            f"{section}:MaxExpiredRows",
            whole(1, 10**15),
            str,
            "a whole number",
            "A run is refused when more rows than that are expired at its start, children not counted.",
        ),
        _unless_off(
            f"{section}:MaxExpiredShare",
            share,
            format_share,
            "a percentage such as 25%",
            "A run is refused when more than this share of all rows is expired at its start.",
        ),
        _unless_off(
            f"{section}:MinimumRetention",
            duration(_CENTURY),
            format_duration,
            "a duration such as 90d",
            "A run is refused when rows would be kept for a shorter time, whatever sets that.",
        ),
    )


USER_ACTIVITY: Final = _connection(
    "ConnectionStrings:UserActivity",
    "The database that activity-retention cleans; without it libpq's PG* variables.",
)
FAVORITES: Final = _connection(
    "ConnectionStrings:Favorites",
    "The database that guest-favorites-cleanup cleans; without it libpq's PG* variables.",
)
ACTIVITY_ENABLED: Final = _on_off(
    "ActivityRetention:Enabled", "Whether the worker runs activity-retention when no job is named."
)
ACTIVITY_RETENTION: Final = _retention(
    "ActivityRetention:RetentionPeriod",
    timedelta(days=365),
    "How long an inactive session is kept after it ended.",
)
ACTIVITY_BATCH: Final = _whole(
    "ActivityRetention:BatchSize", 5000, 50_000, "Sessions deleted in one transaction, with their children."
)
ACTIVITY_BATCHES: Final = _whole(
    "ActivityRetention:MaxBatchesPerRun",
    200,
    1_000_000,
    "Batches after which a run ends and leaves the rest to the next.",
)
ACTIVITY_WORKERS: Final = _whole(
    "ActivityRetention:Workers", 1, MOST_WORKERS, "Connections that delete at once in one run, each batches of its own."
)
ACTIVITY_DURATION: Final = _limit(
    "ActivityRetention:MaxRunDuration",
    timedelta(minutes=30),
    "Time after which a run ends and leaves the rest to the next.",
)
ACTIVITY_CRON: Final = _cron("ActivityRetention:RetentionSchedule", "0 0 3 * * *", "When activity-retention runs.")
ACTIVITY_ZONE: Final = _zone("ActivityRetention:TimeZone", "Europe/Moscow", "The zone RetentionSchedule is read in.")
ACTIVITY_PACE: Final = _pace("ActivityRetention")
ACTIVITY_SAFETY: Final = _safety("ActivityRetention")
GUEST_ENABLED: Final = _on_off(
    "Favorites:GuestRetention:Enabled",
    "Whether the worker runs guest-favorites-cleanup when no job is named.",
)
GUEST_DAYS: Final[Key[timedelta]] = Key(
    "Favorites:GuestRetention:Days",
    timedelta(days=365),
    days(1, _CENTURY.days),
    lambda value: str(value.days),
    f"a whole number of days, 1 to {_CENTURY.days}",
    "Days a guest's favorite is kept after it was last updated.",
)
GUEST_BATCH: Final = _whole("Favorites:GuestRetention:BatchSize", 1000, 50_000, "Favorites deleted in one transaction.")
GUEST_WORKERS: Final = _whole(
    "Favorites:GuestRetention:Workers",
    1,
    MOST_WORKERS,
    "Connections that delete at once in one run, each batches of its own.",
)
GUEST_CRON: Final = _cron("Favorites:GuestRetention:Cron", "0 3 * * *", "When guest-favorites-cleanup runs.")
GUEST_ZONE: Final = _zone("Favorites:GuestRetention:TimeZone", "UTC", "The zone Cron is read in.")
GUEST_DURATION: Final = _limit(
    "Favorites:GuestRetention:MaxRunDuration",
    timedelta(minutes=10),
    "Time after which a run ends and leaves the rest to the next.",
)
GUEST_PACE: Final = _pace("Favorites:GuestRetention")
GUEST_SAFETY: Final = _safety("Favorites:GuestRetention")
OVERRIDE: Final[Key[frozenset[str]]] = Key(
    "Safety:Override",
    frozenset(),
    some_of(Brake),
    lambda brakes: ",".join(sorted(brakes)) or "off",
    f"some of {', '.join(Brake)} with commas between, or off",
    "Brakes that are told and do not hold, as in --set Safety:Override=cutoff-jump for one run.",
)
HTTP_LISTEN: Final[Key[HostPort | None]] = Key(
    "Http:Listen",
    HostPort("127.0.0.1", 9477),
    listen,
    lambda value: str(value or "off"),
    "host:port with a port from 1 to 65535, or off",
    "Where the worker serves its page, /metrics and the probes. With off nobody looks at the databases between runs.",
)
HTTP_TOKEN: Final[Key[AccessToken | None]] = Key(
    "Http:Token",
    None,
    access_token,
    lambda token: "not set" if token is None else str(token),
    "16 characters or more, or off",
    "What has to be shown to see the page: as a bearer token, or in a browser as the password of any user. Where "
    "Http:Listen is not the loopback, the page is closed until this is set; with off everybody may see it. Probes and "
    "metrics answer without.",
)
HTTP_HOSTS: Final[Key[frozenset[str]]] = Key(
    "Http:Hosts",
    frozenset(),
    host_names,
    lambda hosts: ",".join(sorted(hosts)) or "off",
    "names of hosts with commas between, or off",
    "Names under which the page is asked for, beside localhost, the name of this machine and that in Http:Listen. "
    "A request to any other name is refused; one to an address is not.",
)
HISTORY_FILE: Final[Key[Path | None]] = _unless_off(
    "History:File",
    path,
    str,
    "the path of a file",
    "Where the worker keeps what the page knows of past runs when it ends: a local SQLite file of 64 MB at most, which "
    "is made if it is not there. It is never in a database that is cleaned.",
)
PUSHGATEWAY: Final = _unless_off(
    "Metrics:Pushgateway",
    web_address,
    str,
    "an address such as http://pushgateway:9091",
    "Where `run` pushes its metrics when it is over, grouped by the name of the job; a gateway that is away changes "
    "nothing. A worker is scraped instead.",
)

SHUTDOWN_TIMEOUT: Final = _duration(
    "Host:ShutdownTimeout",
    timedelta(seconds=25),
    _HOUR,
    "00:00:25, PT25S or 25s, up to 1 hour",
    "How long a batch in flight may go on after SIGTERM or Ctrl-C before it is cancelled and rolled back. "
    "SIGKILL must not follow sooner than some seconds later: systemd needs TimeoutStopSec=45 for it.",
)
MISFIRE_GRACE: Final = _duration(
    "Host:MisfireGrace",
    timedelta(hours=1),
    _DAY,
    "01:00:00, PT1H or 1h, up to 1 day",
    "How late the worker still starts a run that was due while it was down or asleep; later ones are missed. "
    "A worker restarted within it runs the last one again, which does no harm; 1m makes up for next to nothing.",
)


def _keys(group: PaceKeys | SafetyKeys) -> Iterator[Key[Any]]:
    return (getattr(group, field.name) for field in fields(group))


KEYS: Final[tuple[Key[Any], ...]] = (
    USER_ACTIVITY,
    FAVORITES,
    ACTIVITY_ENABLED,
    ACTIVITY_RETENTION,
    ACTIVITY_BATCH,
    ACTIVITY_BATCHES,
    ACTIVITY_WORKERS,
    ACTIVITY_DURATION,
    ACTIVITY_CRON,
    ACTIVITY_ZONE,
    *_keys(ACTIVITY_PACE),
    *_keys(ACTIVITY_SAFETY),
    GUEST_ENABLED,
    GUEST_DAYS,
    GUEST_BATCH,
    GUEST_WORKERS,
    GUEST_CRON,
    GUEST_ZONE,
    GUEST_DURATION,
    *_keys(GUEST_PACE),
    *_keys(GUEST_SAFETY),
    OVERRIDE,
    HTTP_LISTEN,
    HTTP_TOKEN,
    HTTP_HOSTS,
    HISTORY_FILE,
    PUSHGATEWAY,
    SHUTDOWN_TIMEOUT,
    MISFIRE_GRACE,
)
