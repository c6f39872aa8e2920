"""The alert rules and metrics in a real Prometheus that scrapes a real worker, and a real Pushgateway."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from ops.grafana.generate import dashboards
from pgretention.demo.server import free_port
from pgretention.sinks.metric_names import COMMON, OWN, Kind
from tests.ops.test_dashboards import queries
from tests.support.collector import silent_collector
from tests.support.command import Command
from tests.support.gates import until
from tests.support.planted import HIDDEN, old_favorites, old_sessions
from tests.support.prometheus import OPS, RULES, Prometheus, alerts, prometheus, promtool, pushed, pushgateway
from tests.support.workers import ACTIVITY, GUESTS, Worker, just_now

Admin = Connection[TupleRow]

ROOT = OPS.parent
NAMES = [metric.name for metrics in (COMMON, *OWN.values()) for metric in metrics]
HISTOGRAMS = {metric.name for metrics in (COMMON, *OWN.values()) for metric in metrics if metric.kind is Kind.HISTOGRAM}
_METRIC = re.compile(r"\b(?:pgretention|activity_retention|favorites_guest)_[a-z_]+\b")


def test_the_rules_are_valid_and_do_what_their_tests_say() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", OPS / "prometheus" / "alerts.test.yml")


def test_every_alert_is_tested_once_where_it_fires_and_once_where_it_must_not() -> None:
    text = (OPS / "prometheus" / "alerts.test.yml").read_text("utf-8")
    for rule in alerts():
        name = rule["alert"]
        assert re.search(rf"alertname: {name}, exp_alerts: \[\]", text), name
        assert re.search(rf"alertname: {name}\n\s+exp_alerts:\n\s+- exp_labels", text), name


@pytest.mark.req("A-24", "F-17")
@pytest.mark.parametrize("rule", list(alerts()), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do_and_names_a_runbook_that_is_there(rule: dict[str, Any]) -> None:
    assert set(rule["annotations"]) == {"summary", "action", "runbook"}
    assert (ROOT / rule["annotations"]["runbook"]).is_file()
    for metric in _METRIC.findall(rule["expr"]):
        assert {metric, re.sub("_(bucket|count|sum)$", "", metric)} & set(NAMES), metric


@contextmanager
def scraped(command: Command) -> Generator[Prometheus]:
    """A worker that has run both jobs, and the Prometheus that has scraped it since."""
    address = f"127.0.0.1:{free_port()}"
    worker = Worker(command, Http__Listen=address, **just_now())
    worker.until_said("completed", job=ACTIVITY)
    worker.until_said("job completed", job=GUESTS)
    with prometheus(address) as server:
        until(lambda: server.query("increase(pgretention_runs_total[1d])") != [])  # which takes two scrapes
        yield server
    assert worker.end().code == 0


@pytest.mark.req("A-22", "F-15")
def test_every_metric_arrives_with_its_job_and_every_alert_is_silent_after_a_good_night(
    command: Command, admin: Admin
) -> None:
    old_sessions(admin, 2)
    old_favorites(admin, 3)
    with scraped(command) as server:
        for name in NAMES:
            found = server.query(f"{name}_count" if name in HISTOGRAMS else name)
            assert found, name
            assert all("exported_job" not in labels for labels, _ in found)
        of_jobs = server.query('pgretention_runs_total{outcome="completed"}')
        assert {labels["job"]: value for labels, value in of_jobs} == {ACTIVITY: 1, GUESTS: 1}
        assert server.query("activity_retention_deleted_sessions_total")[0][1] == 2
        assert server.query("favorites_guest_cleanup_deleted_total")[0][1] == 3
        for rule in alerts():
            assert server.query(rule["expr"]) == [], rule["alert"]
        for made in dashboards().values():
            for asked in queries(made):
                assert server.query(asked.replace("$job", GUESTS)), asked
        assert server.query('ALERTS{alertstate="firing"}') == []


def test_a_run_pushes_its_metrics_when_told_under_the_name_of_its_job(command: Command, admin: Admin) -> None:
    old_favorites(admin, 3)
    with pushgateway() as gateway:
        for _ in range(2):  # what was there is replaced
            assert command("run", GUESTS, Metrics__Pushgateway=gateway).code == 0
        shown = pushed(gateway)

    assert f'favorites_guest_cleanup_backlog{{instance="",job="{GUESTS}"}} 0' in shown
    assert f'pgretention_runs_total{{instance="",job="{GUESTS}",outcome="completed"}} 1' in shown
    assert f'pgretention_last_success_timestamp_seconds{{instance="",job="{GUESTS}"}}' in shown
    assert ACTIVITY not in shown
    for text in HIDDEN:
        assert text not in shown


@pytest.mark.parametrize("gateway", ["nobody", "silent"])
def test_a_pushgateway_that_is_away_or_never_answers_changes_nothing(
    command: Command, admin: Admin, gateway: str
) -> None:
    old_favorites(admin, 3)
    with silent_collector() as silent:
        address = {"nobody": "http://127.0.0.1:1", "silent": silent}[gateway]
        ended = command("run", GUESTS, "--json", "--log-format", "json", Metrics__Pushgateway=address)

    assert (ended.code, ended.result["outcome"]) == (0, "completed")
    (told,) = [line for line in ended.log if line["event"] == "metrics not pushed"]
    assert told["level"] == "warning"
