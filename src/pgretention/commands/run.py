"""`pgretention run`: one run, now."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import assert_never

import click

from pgretention import app
from pgretention.clock import SystemClock
from pgretention.commands import codes
from pgretention.commands.environment import settings_in_force, traced_as_told
from pgretention.commands.options import Options, common_options
from pgretention.errors import ConfigurationError, FaultKind
from pgretention.report import Outcome, RunReport
from pgretention.sinks import logs, progress, push, summary
from pgretention.sinks.log_names import INFO
from pgretention.stop import Stop, on_signals


@click.command("run")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@common_options
@click.pass_obj
def command(options: Options, *, job: str, as_json: bool) -> None:
    """Run JOB once, now.

    The first Ctrl-C or SIGTERM ends the run after the batch in flight; a second one cancels that batch too. On a
    terminal the progress bar takes the place of log lines below warning, unless --log-level asks for them.
    """
    app.check_name(job)
    try:
        settings = settings_in_force(options)
        assignment = app.assign(settings)[job]
    except ConfigurationError as error:
        if as_json:
            _show_json(app.refusal(app.default(job).job, FaultKind.CONFIGURATION, "; ".join(error.problems)))
        raise
    stop = Stop()
    with progress.shown(assignment.job, stopping=lambda: stop.requested) as bar:
        level = options.log_level or ("warning" if bar.stream.isatty() else "info")
        log = logs.configure(options.log_format or "console", level, bar.stream)
        told, grace = partial(logs.say, INFO), settings.shutdown_timeout
        with (
            on_signals(stop, grace=grace, clock=SystemClock(), told=told),
            traced_as_told(continued=True) as traced,
            push.pushed(settings.pushgateway, assignment.job, SystemClock()) as pushed,
        ):
            report = app.run(assignment, sinks=[log, bar, *traced, *pushed], stop=stop)
    if as_json:
        _show_json(report)
    else:
        click.echo(summary.text(report, assignment.job.limits))
    sys.exit(exit_code(report.outcome))


def exit_code(outcome: Outcome) -> int:
    """What a finished run tells the shell: 0 all is well, 1 something failed, 3 it was refused (design section 5)."""
    match outcome:
        case Outcome.COMPLETED | Outcome.LIMIT_REACHED | Outcome.STOPPED | Outcome.SKIPPED:
            return 0
        case Outcome.PARTIAL | Outcome.FAILED:
            return codes.FAILED
        case Outcome.REFUSED:
            return codes.REFUSED
    assert_never(outcome)


def _show_json(report: RunReport) -> None:
    click.echo(json.dumps(report.as_json()))
