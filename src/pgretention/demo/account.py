"""Who runs a throw-away server: we ourselves or, since PostgreSQL refuses to run as root, `nobody`."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pgretention.errors import ThrowawayServerError

_UNPRIVILEGED = "nobody"


@dataclass(frozen=True)
class Account:
    """The user and groups that a process is started as, in subprocess's terms; None stands for our own."""

    user: int | None
    group: int | None
    groups: tuple[int, ...] | None

    def can_run(self, program: Path) -> bool:
        """Whether this user reaches the program; it is asked for its version and does nothing else."""
        return self._succeeds(program, "--version")

    def can_enter(self, folder: Path) -> bool:
        """Whether this user reaches the folder, which takes permission for each folder above it too."""
        return self._succeeds("/bin/sh", "-c", 'cd "$1"', "sh", folder)

    def take(self, path: Path) -> None:
        """Make a file or a whole tree, which we have just made ourselves, this user's own."""
        if self.user is None or self.group is None:
            return
        for each in path, *path.rglob("*"):
            os.chown(each, self.user, self.group, follow_symlinks=False)

    def _succeeds(self, *command: str | Path) -> bool:
        try:
            answer = subprocess.run(
                command,
                capture_output=True,
                timeout=30,
                cwd="/",
                user=self.user,
                group=self.group,
                extra_groups=self.groups,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return answer.returncode == 0


def server_account() -> Account:
    """Ourselves, or `nobody` when we are root; initdb wants a user with an entry in the password database."""
    if os.geteuid() != 0:
        return Account(None, None, None)
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise ThrowawayServerError(
            f"PostgreSQL refuses to run as root and there is no user {_UNPRIVILEGED} here to run it instead:"
            " start this as an ordinary user"
        ) from None
    return Account(entry.pw_uid, entry.pw_gid, ())
