"""The watchdog itself, guarding an ordinary process instead of a server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgretention.demo import watchdog as watchdog_module
from pgretention.demo.watchdog import Watchdog

Start = Callable[[Watchdog, str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that ignores the given signals, reports to the watchdog and then does nothing."""
    started: list[subprocess.Popen[bytes]] = []

    def process(watchdog: Watchdog, ignored: str) -> subprocess.Popen[bytes]:
        script = f"trap '' {ignored}; echo $$; exec sleep 600 >/dev/null"
        started.append(subprocess.Popen(["/bin/sh", "-c", script], stdout=watchdog.pipe))
        return started[-1]

    yield process
    for each in started:
        each.kill()
        each.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with something in it, which is the watchdog's to remove."""
    (tmp_path / "guarded" / "deep").mkdir(parents=True)
    return tmp_path / "guarded"


@pytest.mark.parametrize(
    ("ignored", "ended_by"),
    [("HUP", signal.SIGINT), ("INT", signal.SIGQUIT), ("INT QUIT", signal.SIGKILL)],
    ids=["an obedient process", "a slow process", "a stubborn process"],
)
def test_each_signal_it_sends_is_harder_than_the_one_before(
    folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch, ignored: str, ended_by: signal.Signals
) -> None:
    monkeypatch.setattr(watchdog_module, "_TURNS", 4)
    watchdog = Watchdog(folder)
    process = start(watchdog, ignored)
    watchdog.release()
    watchdog.wait()
    assert process.poll() == -ended_by
    assert not folder.exists()


def test_a_pid_it_was_told_to_forget_is_left_alone(folder: Path) -> None:
    watchdog = Watchdog(folder)
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as stranger:
        os.write(watchdog.pipe, f"{stranger.pid}\n".encode())
        watchdog.forget()
        watchdog.release()
        watchdog.wait()
        assert stranger.poll() is None
    assert not folder.exists()


def test_it_is_content_with_a_folder_that_was_never_made(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path / "never")
    watchdog.release()
    watchdog.wait()
    assert not watchdog.on_duty
    assert list(tmp_path.iterdir()) == []
