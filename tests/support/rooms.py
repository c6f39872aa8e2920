"""A folder for the temporary files of one test, and what is still in it or running there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def room_of_its_own() -> Generator[Path]:
    """While inside, temporary files of this process and of those it starts go into a folder open to every user."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield folder
    shutil.rmtree(folder)


def running_in(room: Path) -> dict[int, str]:
    """Command lines, by pid, of the processes that work in the room or name a file of it."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # ended meanwhile, or somebody else's
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{room}/" in command or f"{room}/" in str((process / "cwd").readlink()):
                found[int(process.name)] = command
    return found


def left_in(room: Path) -> list[str]:
    """The files in the room and the command lines of the processes there."""
    return [*(path.name for path in room.iterdir()), *running_in(room).values()]
