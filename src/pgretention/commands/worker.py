"""`pgretention worker`: runs on a schedule, until a stop."""

from __future__ import annotations

import click

from pgretention import app, service
from pgretention.clock import SystemClock
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options
from pgretention.sinks import logs
from pgretention.stop import Stop, ignore_signals, on_signals


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
    chosen = app.choose(app.assign(settings), jobs)
    log = logs.configure(options.log_format or "console", options.log_level or "info")
    stop = Stop()
    with on_signals(stop, grace=settings.shutdown_timeout, clock=SystemClock()):
        service.work(chosen, settings, sinks=[log], stop=stop)
        ignore_signals()
