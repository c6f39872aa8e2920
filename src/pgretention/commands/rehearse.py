"""`pgretention rehearse`: what batches would cost."""

from __future__ import annotations

import json

import click

from pgretention import app, text
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options
from pgretention.errors import Fault, FaultKind


@click.command("rehearse")
@click.argument("job")
@click.option("--batches", type=click.IntRange(1, 100), default=3, show_default=True, help="So many batches at most.")
@click.option("--json", "as_json", is_flag=True, help="Print what was measured as one JSON object.")
@common_options
@click.pass_obj
def command(options: Options, *, job: str, batches: int, as_json: bool) -> None:
    """Delete batches of JOB as a run would, and roll each of them back.

    It says what they cost, and how long all would take. Nothing is gone afterwards. While a batch lasts its rows are
    locked as they are in a run.
    """
    app.check_name(job)
    assignment = app.assign(settings_in_force(options))[job]
    try:
        rehearsal = app.rehearse(assignment, batches)
    except Fault as fault:
        if fault.kind is not FaultKind.PRIVILEGE:
            raise
        raise Fault(fault.kind, f"{fault}; `pgretention check {job}` says which and on what") from None
    click.echo(json.dumps(rehearsal.as_json()) if as_json else text.rehearsal_text(rehearsal))
