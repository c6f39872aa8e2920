"""What deploys pgretention: as far as it can be looked at without a cluster, a daemon or a boot."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pgretention.app import JOB_NAMES
from pgretention.cli import COMMANDS
from pgretention.config import KEYS, load
from pgretention.worker import _LEAVE

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
GRACE = load(None, {}, ()).shutdown_timeout + timedelta(seconds=_LEAVE)
"""How long a process may take to end at the worst."""

UNITS = ["pgretention.service", "pgretention-run@.service"]
VARIABLES = {key.variable for key in KEYS}


def manifest(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((OPS / "kubernetes" / name).read_text("utf-8"))
    return loaded


def pods() -> list[dict[str, Any]]:
    worker, cronjob = manifest("worker.yml"), manifest("cronjob.yml")
    return [worker["spec"]["template"]["spec"], cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]]


def unit(name: str) -> dict[str, str]:
    lines = (OPS / "systemd" / name).read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_pods_run_as_nobody_with_nothing_to_write_and_time_to_end() -> None:
    for pod in pods():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert timedelta(seconds=pod["terminationGracePeriodSeconds"]) > GRACE
        assert "memory" in container["resources"]["limits"]
        assert container["args"][0] in COMMANDS
        assert container["envFrom"] == [{"secretRef": {"name": manifest("secret.yml")["metadata"]["name"]}}]


def test_the_worker_is_probed_where_it_listens() -> None:
    (container,) = pods()[0]["containers"]
    (listen,) = [each["value"] for each in container["env"] if each["name"] == "Http__Listen"]
    assert str(container["ports"][0]["containerPort"]) == listen.rpartition(":")[2]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_secret_and_the_environment_are_settings_that_there_are() -> None:
    assert set(manifest("secret.yml")["stringData"]) <= VARIABLES
    for pod in pods():
        assert {each["name"] for each in pod["containers"][0].get("env", ())} <= VARIABLES


def test_a_scheduled_run_names_a_job_and_never_overlaps() -> None:
    spec = manifest("cronjob.yml")["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"][1] in JOB_NAMES


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_ends_in_time_and_may_hardly_do_anything(name: str) -> None:
    settings = unit(name)
    assert timedelta(seconds=int(settings["TimeoutStopSec"])) > GRACE
    for wanted in "DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute":
        assert settings[wanted] == "yes"
    assert settings["ProtectSystem"] == "strict"
    assert settings["ExecStart"].split()[1] in COMMANDS


def test_the_image_is_started_in_exec_form_as_nobody_with_hashed_requirements() -> None:
    lines = (OPS / "docker" / "Dockerfile").read_text("utf-8")
    assert re.search(r'^ENTRYPOINT \["pgretention"\]$', lines, re.MULTILINE)
    assert re.search(r"^USER [1-9]", lines, re.MULTILINE)
    assert "--require-hashes" in lines
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", lines, re.MULTILINE):
        for path in source.split():
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", [*UNITS, "pgretention-run@.timer"])
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        assert unit(name), "without systemd only its form is looked at"
        return
    for each in (OPS / "systemd").iterdir():
        text = each.read_text("utf-8").replace("/opt/pgretention/bin/pgretention", "/bin/true")
        (tmp_path / each.name).write_text(text)
    target = tmp_path / name.replace("@", "@activity-retention")
    target.write_text((tmp_path / name).read_text("utf-8"))
    done = subprocess.run([program, "verify", target], capture_output=True, text=True, check=False)
    assert not [line for line in done.stderr.splitlines() if str(tmp_path) in line], done.stderr
