"""File, environment and flags become frozen settings that know where each value came from."""

from pgretention.config.connection import ConnectionString, connection_string
from pgretention.config.durations import format_duration, parse_duration
from pgretention.config.keys import KEYS, Key
from pgretention.config.settings import (
    ActivityRetentionSettings,
    EffectiveValue,
    GuestFavoritesSettings,
    Settings,
    load,
)
from pgretention.config.values import AccessToken, HostPort

__all__ = [
    "KEYS",
    "AccessToken",
    "ActivityRetentionSettings",
    "ConnectionString",
    "EffectiveValue",
    "GuestFavoritesSettings",
    "HostPort",
    "Key",
    "Settings",
    "connection_string",
    "format_duration",
    "load",
    "parse_duration",
]
