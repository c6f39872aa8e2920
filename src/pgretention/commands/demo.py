"""`pgretention demo`: both jobs at work on a database to throw away."""

from __future__ import annotations

import sys

import click

from pgretention.commands import codes
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options


@click.command("demo")
@click.option(
    "--serve", is_flag=True, help="Stay up, with both jobs at work once a minute and the status page at Http:Listen."
)
@common_options
@click.pass_obj
def command(options: Options, *, serve: bool) -> None:
    """Clean a throw-away PostgreSQL full of invented data, with proof that nothing else was touched."""
    if serve:
        _serve(options)
    else:
        from pgretention.demo import tour  # noqa: PLC0415  each of the two is slow to load

        sys.exit(0 if tour.tour(sys.stdout) else codes.FAILED)


def _serve(options: Options) -> None:
    from pgretention.clock import SystemClock  # noqa: PLC0415  as above
    from pgretention.demo import live  # noqa: PLC0415  as above
    from pgretention.sinks import logs  # noqa: PLC0415  as above
    from pgretention.stop import Stop, on_signals  # noqa: PLC0415  as above

    settings = settings_in_force(options)
    logs.configure(options.log_format or "console", options.log_level or "warning")
    stop = Stop()
    with on_signals(stop, grace=settings.shutdown_timeout, clock=SystemClock(), told=lambda _: None):
        live.live(sys.stdout, settings, stop)
