"""`pgretention demo`: both jobs at work on a database to throw away."""

from __future__ import annotations

import sys

import click

from pgretention.commands import codes
from pgretention.commands.options import common_options
from pgretention.demo import tour


@click.command("demo")
@common_options
def command() -> None:
    """Clean a throw-away PostgreSQL full of invented data, with proof that nothing else was touched."""
    sys.exit(0 if tour.tour(sys.stdout) else codes.FAILED)
