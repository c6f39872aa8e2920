"""`pgretention schema`: the reference tables, and what a role needs."""

from __future__ import annotations

import click

from pgretention import app, schema
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options


@click.command("schema")
@click.argument("domains", nargs=-1, metavar="[user-activity] [favorites]")
@click.option("--role", metavar="NAME", help="Print the grants that the worker's role needs, instead of the tables.")
@common_options
@click.pass_obj
def command(options: Options, *, domains: tuple[str, ...], role: str | None) -> None:
    """Print the reference tables of the domains as SQL, or with --role the least privileges of a role."""
    chosen = schema.check_domains(domain for words in domains for domain in words.split(","))
    if role is None:
        click.echo("\n".join(schema.ddl(domain) for domain in chosen), nl=False)
        return
    policies = [assignment.job.policy for assignment in app.assign(settings_in_force(options)).values()]
    click.echo(schema.grants([policy for policy in policies if schema.domain_of(policy) in chosen], role), nl=False)
