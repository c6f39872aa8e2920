"""Frozen settings, and the one function that makes them: flags over environment over file over defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pgretention.config.connection import ConnectionString
from pgretention.config.keys import (
    ACTIVITY_BATCH,
    ACTIVITY_BATCHES,
    ACTIVITY_CRON,
    ACTIVITY_DURATION,
    ACTIVITY_ENABLED,
    ACTIVITY_PACE,
    ACTIVITY_RETENTION,
    ACTIVITY_SAFETY,
    ACTIVITY_WORKERS,
    ACTIVITY_ZONE,
    FAVORITES,
    GUEST_BATCH,
    GUEST_CRON,
    GUEST_DAYS,
    GUEST_DURATION,
    GUEST_ENABLED,
    GUEST_PACE,
    GUEST_SAFETY,
    GUEST_WORKERS,
    GUEST_ZONE,
    HISTORY_FILE,
    HTTP_HOSTS,
    HTTP_LISTEN,
    HTTP_TOKEN,
    KEYS,
    MISFIRE_GRACE,
    OVERRIDE,
    PUSHGATEWAY,
    SHUTDOWN_TIMEOUT,
    USER_ACTIVITY,
    Key,
    PaceKeys,
    SafetyKeys,
)
from pgretention.config.sources import from_environment, from_file, from_flags
from pgretention.config.values import AccessToken, HostPort
from pgretention.errors import ConfigurationError
from pgretention.job import Brake, Pace, Safety
from pgretention.schedule import Schedule

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRetentionSettings:
    """What activity-retention runs by (A-07, A-08)."""

    enabled: bool
    retention: timedelta
    batch_size: int
    max_batches_per_run: int
    workers: int
    max_run_duration: timedelta
    schedule: Schedule
    pace: Pace
    safety: Safety


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFavoritesSettings:
    """What guest-favorites-cleanup runs by (F-04); `retention` is Favorites:GuestRetention:Days."""

    enabled: bool
    retention: timedelta
    batch_size: int
    workers: int
    max_run_duration: timedelta
    schedule: Schedule
    pace: Pace
    safety: Safety


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One setting as it is in force: its key, its value without secrets, and where that came from.

    `source` is `default`, `file PATH`, `environment NAME` or `--set`.
    """

    key: str
    shown: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that can be set, checked; where a connection string is None, libpq goes by its own environment."""

    user_activity_dsn: ConnectionString | None
    favorites_dsn: ConnectionString | None
    activity_retention: ActivityRetentionSettings
    guest_favorites: GuestFavoritesSettings
    http_listen: HostPort | None
    http_token: AccessToken | None
    http_hosts: frozenset[str]
    history_file: Path | None
    pushgateway: str | None
    shutdown_timeout: timedelta
    misfire_grace: timedelta
    values: tuple[EffectiveValue, ...] = field(default=(), repr=False, compare=False)

    def effective(self) -> Sequence[EffectiveValue]:
        """Every setting in the order of KEYS."""
        return self.values


def load(path: Path | None, environ: Mapping[str, str], overrides: Sequence[str]) -> Settings:
    """The settings in force, from a file if there is one, the environment and the values of `--set`.

    Each value that is given is checked, those that another source overrides included. Raises
    ConfigurationError with every problem at once, a line each: the setting, the source and the way out, never
    a secret (H-05).
    """
    problems: list[str] = []
    found: dict[str, _Found] = {}
    file = from_file(path) if path is not None else iter(())
    for reading in (file, from_environment(environ), from_flags(overrides)):
        for item in reading:
            if isinstance(item, str):
                problems.append(item)
                continue
            try:
                found[item.key.path] = _Found(item.key.read(item.raw), item.source)
            except ConfigurationError as error:
                problems.append(f"{item.key.path} ({item.source}): {error}; allowed: {item.key.accepts}")
    if problems:
        raise ConfigurationError(problems)
    return _settings(found)


@dataclass(frozen=True, slots=True)
class _Found:
    value: object
    source: str


def _settings(found: Mapping[str, _Found]) -> Settings:
    def value(key: Key[T]) -> T:
        return cast("T", found[key.path].value) if key.path in found else key.default

    def effective(key: Key[Any]) -> EffectiveValue:
        source = found[key.path].source if key.path in found else "default"
        return EffectiveValue(key.path, key.show(value(key)), source)

    def pace(keys: PaceKeys) -> Pace:
        pause = value(keys.pause) or timedelta(0)
        return Pace(pause, value(keys.replica_lag), value(keys.wal_rate), value(keys.batch_duration))

    def safety(keys: SafetyKeys) -> Safety:
        overridden = frozenset(Brake(name) for name in value(OVERRIDE))
        return Safety(value(keys.expired_rows), value(keys.expired_share), value(keys.retention), overridden)

    return Settings(
        user_activity_dsn=value(USER_ACTIVITY),
        favorites_dsn=value(FAVORITES),
        activity_retention=ActivityRetentionSettings(
            enabled=value(ACTIVITY_ENABLED),
            retention=value(ACTIVITY_RETENTION),
            batch_size=value(ACTIVITY_BATCH),
            max_batches_per_run=value(ACTIVITY_BATCHES),
            workers=value(ACTIVITY_WORKERS),
            max_run_duration=value(ACTIVITY_DURATION),
            schedule=Schedule.parse(value(ACTIVITY_CRON), value(ACTIVITY_ZONE)),
            pace=pace(ACTIVITY_PACE),
            safety=safety(ACTIVITY_SAFETY),
        ),
        guest_favorites=GuestFavoritesSettings(
            enabled=value(GUEST_ENABLED),
            retention=value(GUEST_DAYS),
            batch_size=value(GUEST_BATCH),
            workers=value(GUEST_WORKERS),
            max_run_duration=value(GUEST_DURATION),
            schedule=Schedule.parse(value(GUEST_CRON), value(GUEST_ZONE)),
            pace=pace(GUEST_PACE),
            safety=safety(GUEST_SAFETY),
        ),
        http_listen=value(HTTP_LISTEN),
        http_token=value(HTTP_TOKEN),
        http_hosts=value(HTTP_HOSTS),
        history_file=value(HISTORY_FILE),
        pushgateway=value(PUSHGATEWAY),
        shutdown_timeout=value(SHUTDOWN_TIMEOUT),
        misfire_grace=value(MISFIRE_GRACE),
        values=tuple(effective(key) for key in KEYS),
    )
