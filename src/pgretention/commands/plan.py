"""`pgretention plan`: what a run would do."""

from __future__ import annotations

import click

from pgretention import app, text
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options


@click.command("plan")
@click.argument("job")
@common_options
@click.pass_obj
def command(options: Options, *, job: str) -> None:
    """Show what a run of JOB would do now: rows by table, order, limits and statements. Deletes nothing."""
    app.check_name(job)
    click.echo(text.preview_text(app.look(app.assign(settings_in_force(options))[job])))
