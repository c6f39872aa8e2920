"""A contender in a process of its own: a Task as JSON on stdin, what it used as JSON on stdout.

The clock starts when everything is imported and stops after the last COMMIT, so that it covers connecting. Memory is
the most that the process itself had resident at any time, its interpreter included.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import contenders
from bench.contenders import Task


@dataclass(frozen=True, slots=True)
class Used:
    """What a contender needed: seconds, those of the processor in its own process, bytes, and when batches ended.

    `began_at` is the instant of the epoch from which the rest is counted.
    """

    began_at: float
    seconds: float
    cpu_seconds: float
    peak_rss: int
    ended: list[float]


def run(task: Task) -> Used:
    """Run a contender; raises CalledProcessError, which its output precedes on stderr, when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", __name__], input=json.dumps(asdict(task)), stdout=subprocess.PIPE, text=True, check=True
    )
    return Used(**json.loads(done.stdout))


def main() -> None:
    """What the process does."""
    task = Task(**json.load(sys.stdin))
    delete = contenders.load(task.path)
    ended: list[float] = []
    began_at, cpu, began = time.time(), time.process_time(), time.perf_counter()
    delete(task, lambda: ended.append(time.perf_counter() - began))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    used = Used(began_at, seconds, cpu_seconds, _peak_rss(), ended)
    json.dump(asdict(used), sys.stdout)


def _peak_rss() -> int:
    """getrusage would count what the process was a copy of before it became this program."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


if __name__ == "__main__":
    main()
