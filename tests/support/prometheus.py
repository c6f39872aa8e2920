"""Debian's Prometheus, promtool and Pushgateway: started on the loopback for one test, gone at its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from pgretention.demo.server import free_port
from tests.support.gates import until

OPS = Path(__file__).parents[2] / "ops"
RULES = OPS / "prometheus" / "alerts.yml"

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/bin"
_ENDING = 20


def installed() -> bool:
    """Whether all three programs are here."""
    return all(_program(name) for name in ("prometheus", "promtool", "prometheus-pushgateway"))


def described() -> str:
    """The line for the header of the tests."""
    return "installed" if installed() else "none (tests/ops/test_prometheus.py is left out)"


def promtool(*words: str | Path) -> str:
    """What it prints; fails where it fails."""
    done = subprocess.run([_needed("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> Iterator[dict[str, Any]]:
    """Every alert rule there is."""
    for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]:
        yield from group["rules"]


@dataclass(frozen=True)
class Prometheus:
    """A running one; `url` is where it answers."""

    url: str

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The series that an expression gives now, each with its value; fails where it is no expression."""
        with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': expression})}") as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return [(found["metric"], float(found["value"][1])) for found in answer["data"]["result"]]


@contextmanager
def prometheus(*targets: str) -> Generator[Prometheus]:
    """Scrapes these addresses every second, as ops/prometheus/scrape.yml says, and evaluates the alert rules."""
    with tempfile.TemporaryDirectory() as folder:
        settings = yaml.safe_load((OPS / "prometheus" / "scrape.yml").read_text("utf-8"))
        settings["scrape_configs"][0] |= {"scrape_interval": "1s", "static_configs": [{"targets": list(targets)}]}
        settings |= {"rule_files": [str(RULES)], "global": {"evaluation_interval": "1s"}}
        (Path(folder) / "prometheus.yml").write_text(yaml.safe_dump(settings))
        address = f"127.0.0.1:{free_port()}"
        words = (
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
        )
        with _running("prometheus", *words):
            until(lambda: _answers(f"http://{address}/-/ready"))
            yield Prometheus(f"http://{address}")


@contextmanager
def pushgateway() -> Generator[str]:
    """The address of a running one."""
    address = f"127.0.0.1:{free_port()}"
    with _running("prometheus-pushgateway", f"--web.listen-address={address}"):
        until(lambda: _answers(f"http://{address}/-/ready"))
        yield f"http://{address}"


def pushed(address: str) -> str:
    """What a Pushgateway shows of what was pushed, without its own metrics."""
    with urlopen(f"{address}/metrics") as response:
        lines = response.read().decode().splitlines()
    return "\n".join(line for line in lines if re.match(r"(pgretention|activity_retention|favorites|push_time)", line))


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


@contextmanager
def _running(program: str, *words: str) -> Generator[None]:
    process = subprocess.Popen([_needed(program), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(_ENDING)


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def _needed(name: str) -> str:
    program = _program(name)
    assert program is not None, name
    return program
