"""On what and with what was measured."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

from bench.rig import SETTINGS, Rig

_PACKAGES = ("pgretention", "psycopg", "sqlalchemy", "django")


def about(rig: Rig) -> dict[str, object]:
    """The machine, the server with what is not its default, and the versions of what has a part in it."""
    with rig.connect() as connection:
        ((server,),) = connection.execute("SELECT current_setting('server_version')").fetchall()
    return {
        "machine": {
            "processor": _found(Path("/proc/cpuinfo"), r"model name\s*: (.+)"),
            "cores": os.cpu_count(),
            "memory_gb": round(int(_found(Path("/proc/meminfo"), r"MemTotal: +(\d+)") or 0) / 1_000_000),
            "system": f"{platform.system()} {platform.release()}",
            "load_before": os.getloadavg()[0],
        },
        "server": {"version": server, "origin": rig.binaries.origin, "settings": dict(SETTINGS)},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }


def _found(file: Path, pattern: str) -> str:
    match = re.search(pattern, file.read_text(encoding="utf-8"))
    return match[1] if match else ""
