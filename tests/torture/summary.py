"""What the torture says at its end."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.databases import WORKER
from tests.torture.accounts import Run
from tests.torture.application import Tally
from tests.torture.evidence import Admin

_ROWS = """
    SELECT relation, count(*), count(g.id), count(g.id) FILTER (WHERE g.by = %s)
      FROM witness.born b LEFT JOIN witness.gone g USING (relation, id) GROUP BY relation ORDER BY relation
"""
_TAIL, _WIDTH = 8, 400
"""Log lines, and letters of them, that are shown of a process which a finding names."""


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(admin: Admin, tally: Tally, runs: Iterable[Run]) -> None:
    """Everything that was counted."""
    runs = list(runs)
    say("")
    for what in "acts", "application errors", "snapshots", "faults", "exit codes":
        _list(what, tally.of(what))
    outcomes = Counter(f"{run.job} {run.outcome or 'killed'}" + (f" ({run.kind})" if run.kind else "") for run in runs)
    _list("runs", dict(sorted(outcomes.items())))
    say(f"{'rows':<40}{'inserted':>10}{'gone':>10}{'by us':>10}")
    for relation, born, gone, ours in admin.execute(_ROWS, [WORKER]):
        say(f"  {relation:<38}{born:>10,}{gone:>10,}{ours:>10,}")
    say(f"  connections that went while their run went on {sum(run.lost for run in runs):,}")
    say(f"  counted in logs {sum(sum(run.counted.values()) for run in runs):,}")
    say("")


def show(findings: list[str], folder: Path) -> None:
    """Each finding, and the last words of the processes it names; what they wrote is kept only if there is one."""
    if not findings:
        shutil.rmtree(folder)
        say("Everything held.")
        return
    for finding in findings:
        say(f"FOUND {finding}")
    for name in dict.fromkeys(re.findall(r"process (\d+)", "\n".join(findings))):
        say(f"\nThe end of {name}.err:")
        for line in (folder / f"{name}.err").read_text().splitlines()[-_TAIL:]:
            say(f"  {line[:_WIDTH]}")
    say(f"\n{len(findings)} findings. What our processes wrote, and when which fault was done, is kept in {folder}.")


def _list(what: str, counts: Mapping[str, int]) -> None:
    say(what)
    for detail, count in counts.items():
        say(f"  {detail:<58}{count:>10,}")
