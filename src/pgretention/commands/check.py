"""`pgretention check`: what would go wrong, found before a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import click

from pgretention import app, text
from pgretention.commands import codes
from pgretention.commands.environment import settings_in_force
from pgretention.commands.options import Options, common_options
from pgretention.errors import Fault
from pgretention.preflight import Finding, Severity


@click.command("check")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@common_options
@click.pass_obj
def command(options: Options, *, jobs: tuple[str, ...], as_json: bool) -> None:
    """Find what would go wrong in a run of JOB, or of every job, with what puts it right. Deletes nothing.

    The exit code is 3 when there is an error, 1 when a database cannot be looked at, and else 0, also with warnings and
    notes.
    """
    for job in jobs:
        app.check_name(job)
    assignments = app.assign(settings_in_force(options))
    found: dict[str, tuple[Finding, ...]] = {}
    unseen: dict[str, Fault] = {}
    for name in dict.fromkeys(jobs or assignments):
        try:
            found[name] = app.inspect(assignments[name])
        except Fault as fault:
            unseen[name] = fault
    if as_json:
        click.echo(json.dumps({name: [finding.as_json() for finding in findings] for name, findings in found.items()}))
    elif found:
        click.echo("\n\n".join(text.findings_text(name, findings) for name, findings in found.items()))
    for name, why in unseen.items():
        click.echo(f"pgretention: {name}: {why}", err=True)
    sys.exit(_exit_code(found, unseen))


def _exit_code(found: Mapping[str, Sequence[Finding]], unseen: Mapping[str, Fault]) -> int:
    if any(finding.severity is Severity.ERROR for findings in found.values() for finding in findings):
        return codes.REFUSED
    return codes.FAILED if unseen else 0
