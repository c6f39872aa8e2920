"""`pgretention plan`: what a run would do."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from pgretention import app, text
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options
from pgretention.errors import ConfigurationError

_EXAMPLE = "2027-01-31T03:00+03:00"
_FIRST, _LAST = 1970, 9000


@click.command("plan")
@click.argument("job")
@click.option("--as-of", metavar="INSTANT", help=f"What a run would do then, as in {_EXAMPLE}.")
@click.option("--explain", is_flag=True, help="Show how PostgreSQL would execute the statements, and what that means.")
@common_options
@click.pass_obj
def command(options: Options, *, job: str, as_of: str | None, explain: bool) -> None:
    """Show what a run of JOB would do now: rows by table, order, limits and statements. Deletes nothing."""
    app.check_name(job)
    instant = None if as_of is None else _instant(as_of)
    assignment = app.assign(settings_in_force(options))[job]
    preview = app.look(assignment, instant)
    click.echo(text.preview_text(preview))
    if explain:
        click.echo(f"\n{text.shapes_text(app.explain(assignment, preview.cutoff))}")


def _instant(written: str) -> datetime:
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        raise ConfigurationError([f"--as-of {written!r}: is no instant; write it as in {_EXAMPLE}"]) from None
    if instant.tzinfo is None:
        raise ConfigurationError([f"--as-of {written!r}: has no zone; add it, as in {_EXAMPLE}"])
    if not _FIRST <= instant.year <= _LAST:
        raise ConfigurationError([f"--as-of {written!r}: must lie in the years {_FIRST} to {_LAST}"])
    return instant.astimezone(UTC)
