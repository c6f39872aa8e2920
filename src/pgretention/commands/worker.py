"""`pgretention worker`: runs on a schedule, until a stop."""

from __future__ import annotations

from functools import partial

import click

from pgretention import app, service
from pgretention.clock import SystemClock
from pgretention.commands.environment import settings_in_force, traced_as_told
from pgretention.commands.options import Options, common_options
from pgretention.sinks import logs
from pgretention.sinks.log_names import INFO
from pgretention.stop import Stop, on_signals


@click.command("worker")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@common_options
@click.pass_obj
def command(options: Options, *, jobs: tuple[str, ...]) -> None:
    """Stay up and run each job on its schedule: the named ones, or all that are switched on.

    The first Ctrl-C or SIGTERM ends it: at once when nothing runs, else after the batch in flight, which a second one
    or the end of Host:ShutdownTimeout cancels.
    """
    for job in jobs:
        app.check_name(job)
    settings = settings_in_force(options)
    assignments = app.assign(settings)
    chosen = app.choose(assignments, jobs)
    others = [assignment for assignment in assignments.values() if assignment not in chosen]
    log = logs.configure(options.log_format or "console", options.log_level or "info")
    stop, grace = Stop(), settings.shutdown_timeout
    with (
        on_signals(stop, grace=grace, clock=SystemClock(), told=partial(logs.say, INFO)),
        traced_as_told(continued=False) as traced,
    ):
        service.work(chosen, settings, sinks=[log, *traced], stop=stop, others=others)
