"""`pgretention config`: the settings in force."""

from __future__ import annotations

import click

from pgretention import text
from pgretention.commands.environment import settings_file, settings_in_force
from pgretention.commands.options import Options, common_options


@click.command("config")
@common_options
@click.pass_obj
def command(options: Options) -> None:
    """Show every setting in force and where its value came from; secrets are never shown."""
    click.echo(text.config_text(settings_file(options), settings_in_force(options).effective()))
