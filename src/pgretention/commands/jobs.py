"""`pgretention jobs`: what runs when."""

from __future__ import annotations

import click

from pgretention import app, text
from pgretention.clock import SystemClock
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options


@click.command("jobs")
@common_options
@click.pass_obj
def command(options: Options) -> None:
    """List the jobs with their schedules and their next runs."""
    assignments = app.assign(settings_in_force(options)).values()
    click.echo(text.jobs_text([assignment.job for assignment in assignments], SystemClock().now()))
