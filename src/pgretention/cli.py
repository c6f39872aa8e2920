"""Commands and exit codes. Results go to stdout, logs and progress to stderr (design section 5)."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO, assert_never

import click

from pgretention import __version__, app, schema, text
from pgretention.clock import SystemClock
from pgretention.config import FILE_VARIABLE, Settings, load
from pgretention.errors import ConfigurationError, FaultKind, PgRetentionError, Refusal
from pgretention.report import Outcome, RunReport
from pgretention.sinks import logs, progress, summary
from pgretention.stop import Stop, ignore_signals, on_signals

FAILED, WRONG_USE, REFUSED = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Options:
    """What every command takes, before or after its name."""

    config: Path | None = None
    overrides: tuple[str, ...] = ()
    log_format: str | None = None
    log_level: str | None = None

    def over(self, outer: Options) -> Options:
        """These options, and where they say nothing those given before the command's name."""
        return Options(
            config=self.config or outer.config,
            overrides=(*outer.overrides, *self.overrides),
            log_format=self.log_format or outer.log_format,
            log_level=self.log_level or outer.log_level,
        )

    @property
    def file(self) -> Path | None:
        """The settings file: that of `--config`, else that of PGRETENTION_CONFIG, else none."""
        named = os.environ.get(FILE_VARIABLE)
        return self.config or (None if named is None else Path(named))

    def settings(self) -> Settings:
        """The settings in force; raises ConfigurationError."""
        return load(self.file, os.environ, self.overrides)


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that all share; it is handed them as one `Options` in the context's `obj`."""

    @click.option(
        "--config",
        type=click.Path(path_type=Path),
        help=f"Settings file: TOML, YAML or JSON. Else {FILE_VARIABLE} names it.",
    )
    @click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting that overrides all others.")
    @click.option("--log-format", type=click.Choice(["console", "json"]), help="Form of the log lines on stderr.")
    @click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Least level logged.")
    @click.pass_context
    def with_options(
        context: click.Context,
        /,
        *,
        config: Path | None,
        overrides: tuple[str, ...],
        log_format: str | None,
        log_level: str | None,
        **rest: Any,
    ) -> Any:
        context.obj = Options(config, overrides, log_format, log_level).over(context.obj or Options())
        return context.invoke(command, **rest)

    return functools.update_wrapper(with_options, command)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pgretention")
@common_options
def commands() -> None:
    """Delete expired rows from PostgreSQL, oldest first, in small safe batches."""


@commands.command()
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@common_options
@click.pass_obj
def run(options: Options, *, job: str, as_json: bool) -> None:
    """Run JOB once, now.

    The first Ctrl-C or SIGTERM ends the run after the batch in flight; a second one cancels that batch too. On a
    terminal the progress bar takes the place of log lines below warning, unless --log-level asks for them.
    """
    app.check_name(job)
    try:
        settings = options.settings()
        assignment = app.assign(settings)[job]
    except ConfigurationError as error:
        if as_json:
            _show_json(app.refusal(app.default(job).job, FaultKind.CONFIGURATION, "; ".join(error.problems)))
        raise
    stop, clock = Stop(), SystemClock()
    with on_signals(stop, grace=settings.shutdown_timeout, clock=clock):
        with progress.shown(assignment.job, stopping=lambda: stop.requested) as bar:
            level = options.log_level or ("warning" if bar.stream.isatty() else "info")
            log = logs.configure(options.log_format or "console", level, bar.stream)
            report = app.run(assignment, sinks=[log, bar], stop=stop)
        if as_json:
            _show_json(report)
        else:
            click.echo(summary.text(report, assignment.job.limits))
        ignore_signals()
    sys.exit(exit_code(report.outcome))


@commands.command()
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@common_options
@click.pass_obj
def worker(options: Options, *, jobs: tuple[str, ...]) -> None:
    """Stay up and run each job on its schedule: the named ones, or all that are switched on.

    The first Ctrl-C or SIGTERM ends it: at once when nothing runs, else after the batch in flight, which a second one
    or the end of Host:ShutdownTimeout cancels.
    """
    for job in jobs:
        app.check_name(job)
    settings = options.settings()
    chosen = app.choose(app.assign(settings), jobs)
    log = logs.configure(options.log_format or "console", options.log_level or "info")
    stop = Stop()
    with on_signals(stop, grace=settings.shutdown_timeout, clock=SystemClock()):
        app.work(chosen, settings, sinks=[log], stop=stop)
        ignore_signals()


@commands.command()
@click.argument("job")
@common_options
@click.pass_obj
def plan(options: Options, *, job: str) -> None:
    """Show what a run of JOB would do now: rows by table, order, limits and statements. Deletes nothing."""
    app.check_name(job)
    click.echo(text.preview_text(app.look(app.assign(options.settings())[job])))


@commands.command()
@common_options
@click.pass_obj
def jobs(options: Options) -> None:
    """List the jobs with their schedules and their next runs."""
    assignments = app.assign(options.settings()).values()
    click.echo(text.jobs_text([assignment.job for assignment in assignments], SystemClock().now()))


@commands.command()
@common_options
@click.pass_obj
def config(options: Options) -> None:
    """Show every setting in force and where its value came from; secrets are never shown."""
    click.echo(text.config_text(options.file, options.settings().effective()))


@commands.command(name="schema")
@click.argument("domains", nargs=-1, metavar="[user-activity] [favorites]")
@click.option("--role", metavar="NAME", help="Print the grants that the worker's role needs, instead of the tables.")
@common_options
@click.pass_obj
def schema_command(options: Options, *, domains: tuple[str, ...], role: str | None) -> None:
    """Print the reference tables of the domains as SQL, or with --role the least privileges of a role."""
    chosen = schema.check_domains(domain for words in domains for domain in words.split(","))
    if role is None:
        click.echo("\n".join(schema.ddl(domain) for domain in chosen), nl=False)
        return
    policies = [assignment.job.policy for assignment in app.assign(options.settings()).values()]
    click.echo(schema.grants([policy for policy in policies if schema.domain_of(policy) in chosen], role), nl=False)


@commands.command()
@common_options
def demo() -> None:
    """Clean a throw-away PostgreSQL full of invented data, with proof that nothing else was touched."""
    from pgretention.demo import tour  # noqa: PLC0415  nothing else needs the throw-away server

    sys.exit(0 if tour.tour(sys.stdout) else FAILED)


def exit_code(outcome: Outcome) -> int:
    """What a finished run tells the shell: 0 all is well, 1 something failed, 3 it was refused (design section 5)."""
    match outcome:
        case Outcome.COMPLETED | Outcome.LIMIT_REACHED | Outcome.STOPPED | Outcome.SKIPPED:
            return 0
        case Outcome.PARTIAL | Outcome.FAILED:
            return FAILED
        case Outcome.REFUSED:
            return REFUSED
    assert_never(outcome)


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
        _give_up(error.problems, WRONG_USE)
    except Refusal as refusal:
        _give_up(refusal.reasons, REFUSED)
    except PgRetentionError as error:
        _give_up([str(error)], FAILED)
    except OSError as error:  # stdout is a full disk, or closed
        _give_up([f"cannot write the result: {error.strerror}"], FAILED)


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


def _show_json(report: RunReport) -> None:
    click.echo(json.dumps(report.as_json()))
