"""The settings in force, from the options of a command and the environment it was started in."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from pgretention import FILE_VARIABLE
from pgretention.clock import SystemClock
from pgretention.commands.options import Options
from pgretention.config import Settings, load
from pgretention.sinks import traces


def settings_file(options: Options) -> Path | None:
    """The settings file: that of `--config`, else that of PGRETENTION_CONFIG, else none."""
    named = os.environ.get(FILE_VARIABLE)
    return options.config or (None if named is None else Path(named))


def settings_in_force(options: Options) -> Settings:
    """The settings of flags, environment and file; raises ConfigurationError."""
    return load(settings_file(options), os.environ, options.overrides)


def traced_as_told(*, continued: bool) -> AbstractContextManager[list[traces.Traces]]:
    """While inside, runs are traced if OpenTelemetry's variables say where to; see `traces.sent`."""
    return traces.sent(os.environ, SystemClock(), continued=continued)
