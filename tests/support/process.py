"""A run in a process of its own: `python -m tests.support.process` and a few words.

The words are the connection string, the policy's name and the batch size; the report goes to stdout as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pgretention import engine
from pgretention.clock import SystemClock
from pgretention.policy import Policy
from pgretention.stop import Stop
from tests.databases import Database
from tests.support.runs import ACTIVITY, GUESTS, ignore, job

_ROOT = Path(__file__).parents[2]


@contextmanager
def started(database: Database, policy: Policy, batch_size: int) -> Generator[subprocess.Popen[str]]:
    """The process, killed at the end if it has not ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.process", database.worker_dsn, policy.name, str(batch_size)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def report_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end; whatever the run met, the process itself ends well and says nothing but its report."""
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    return cast("dict[str, Any]", json.loads(out))


def _main(dsn: str, name: str, batch_size: str) -> None:
    policy = {policy.name: policy for policy in (ACTIVITY, GUESTS)}[name]
    report = engine.run(
        job(policy, batch_size=int(batch_size)),
        dsn,
        run_id=str(os.getpid()),
        observe=ignore,
        stop=Stop(),
        clock=SystemClock(),
    )
    sys.stdout.write(json.dumps(report.as_json()))


if __name__ == "__main__":
    _main(*sys.argv[1:])
