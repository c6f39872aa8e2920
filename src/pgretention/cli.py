"""The `pgretention` command: names, help and exit codes. Results go to stdout, logs to stderr (design section 5).

Only names and texts are known here, so that `--help` answers at once; the module of a command, and with it the database
driver or the web server, is imported when somebody asks for that command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn, TextIO

import click

from pgretention import __version__, signals
from pgretention.commands import codes
from pgretention.commands.options import common_options
from pgretention.errors import ConfigurationError, PgRetentionError, Refusal

COMMANDS: Final = {
    "check": "Find what would go wrong in a run of JOB, or of every job, with what puts it right.",
    "config": "Show every setting in force and where its value came from.",
    "demo": "Clean a throw-away PostgreSQL full of invented data.",
    "jobs": "List the jobs with their schedules and their next runs.",
    "plan": "Show what a run of JOB would do now.",
    "rehearse": "Delete batches of JOB as a run would, and roll each of them back.",
    "run": "Run JOB once, now.",
    "schema": "Print the reference tables of the domains as SQL.",
    "worker": "Stay up and run each job on its schedule.",
}
"""Each command, which is a module of that name in `pgretention.commands`, and what `--help` says of it."""


_FINISHING: Final = frozenset({"run", "worker"})
"""Those that hear signals, and end in their own way."""


class Commands(click.Group):
    """A group that imports a command only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"pgretention.commands.{cmd_name}").command
        if cmd_name not in _FINISHING:
            signals.let_through()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pgretention")
@common_options
def commands() -> None:
    """Delete expired rows from PostgreSQL, oldest first, in small safe batches."""


def main() -> None:
    """The `pgretention` command: every error of ours is a line on stderr and an exit code, never a traceback (H-05)."""
    try:
        _run_command()
    finally:
        for stream in (sys.stdout, sys.stderr):
            _settle(stream)


def _run_command() -> None:
    try:
        commands()
    except ConfigurationError as error:
        _give_up(error.problems, codes.WRONG_USE)
    except Refusal as refusal:
        _give_up(refusal.reasons, codes.REFUSED)
    except PgRetentionError as error:
        _give_up([str(error)], codes.FAILED)
    except OSError as error:  # stdout is a full disk, or closed
        _give_up([f"cannot write the result: {error.strerror}"], codes.FAILED)


def _settle(stream: TextIO | None) -> None:
    """Write out what is left; where that is impossible Python would say so at its end, with an exit code of its own."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _give_up(lines: Iterable[str], code: int) -> NoReturn:
    with suppress(OSError):  # stderr may be what cannot be written
        for line in lines:
            click.echo(f"pgretention: {line}", err=True)
    sys.exit(code)
