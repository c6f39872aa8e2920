"""What each command loads: nothing that is slow and that it does not need, so that help is there at once."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import pgretention
from pgretention.cli import COMMANDS

GUESTS = "guest-favorites-cleanup"

SERVING = {"prometheus_client", "starlette", "uvicorn", "pgretention.web", "pgretention.worker"}
"""What answers probes and scrapes, and what waits for schedules."""

DRIVER = {"psycopg"}

LOGGING = {"rich", "structlog"}

READING = {"cronsim", "tomllib", "yaml", "zoneinfo", "pgretention.config"}
"""What it takes to understand settings."""

HEAVY = SERVING | DRIVER | LOGGING | READING | {"asyncio", "email", "http", "importlib.metadata", "ssl"}


def loaded(*words: str) -> set[str]:
    """Every module that a command has loaded by its end, where no database answers and nobody can listen."""
    program = f"""
import json, sys
from pgretention.cli import main
sys.argv = ["pgretention", *{words!r}]
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "PATH": os.defpath,
            "PYTHONPATH": str(Path(pgretention.__file__).parents[1]),
            "ConnectionStrings__Favorites": "host=127.0.0.1 port=1 user=nobody",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(json.loads(ended.stdout.splitlines()[-1]))
    assert "pgretention.cli" in modules
    return modules


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("no-such-command",)], ids=" ".join)
def test_help_loads_nothing_that_only_a_command_needs(words: tuple[str, ...]) -> None:
    modules = loaded(*words)

    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith("pgretention.")} == {
        "pgretention.cli",
        "pgretention.commands",
        "pgretention.commands.codes",
        "pgretention.commands.options",
        "pgretention.errors",
        "pgretention.signals",
    }


@pytest.mark.parametrize("words", [("run", GUESTS, "--json"), ("plan", GUESTS), ("jobs",), ("config",)], ids=" ".join)
def test_only_the_worker_loads_the_web_server_the_metrics_and_what_waits_for_schedules(words: tuple[str, ...]) -> None:
    assert loaded(*words) & SERVING == set()
    assert loaded("worker", GUESTS, "--set", "Http:Listen=192.0.2.1:9477") >= SERVING


def test_settings_are_shown_without_a_log_and_without_what_deletes() -> None:
    modules = loaded("config")  # psycopg is what reads the connection string that is set

    assert modules & LOGGING == set()
    assert {"pgretention.app", "pgretention.engine", "pgretention.db"} & modules == set()
    assert "pgretention.engine" in loaded("run", GUESTS)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_the_list_says_of_a_command_is_how_its_own_help_begins(name: str) -> None:
    command = importlib.import_module(f"pgretention.commands.{name}").command

    assert isinstance(command, click.Command)
    assert command.name == name
    begins = " ".join((command.help or "").split("\n\n")[0].split())
    assert begins.startswith(COMMANDS[name].rstrip("."))
