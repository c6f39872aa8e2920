"""Traces of runs as a collector gets them, taken apart by OpenTelemetry's own protocol."""

from __future__ import annotations

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

import pgretention
from tests.support.collector import Collector, collector, silent_collector
from tests.support.command import Command
from tests.support.planted import HIDDEN, old_favorites, old_sessions, plant
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS, ids
from tests.support.workers import GUESTS as GUEST_JOB
from tests.support.workers import Worker, just_now

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def without_rows(into: Collector) -> None:
    assert into.raw
    for text in HIDDEN:
        assert text.encode() not in into.raw


@pytest.mark.req("F-16")
def test_a_run_of_favorites_is_a_span_with_the_attributes_of_its_specification_and_one_below_it_a_batch(
    command: Command, admin: Admin
) -> None:
    old_favorites(admin, 5)
    with collector() as into:
        ended = command("run", GUESTS, "--json", OTEL_EXPORTER_OTLP_ENDPOINT=into.url, **TWO_A_BATCH)

    (run,) = into.named(GUESTS)
    assert ended.code == 0
    run_id = ended.result["run_id"]
    assert (
        run.attributes.items()
        >= {
            "jobRunId": run_id,
            "retentionDays": 365,
            "batchSize": 2,
            "deletedTotal": 5,
            "pgretention.job": GUESTS,
            "pgretention.run_id": run_id,
            "pgretention.outcome": "completed",
            f"pgretention.deleted.{FAVORITES}": 5,
            "pgretention.backlog_remaining": 0,
        }.items()
    )
    assert (run.parent, run.status) == ("", 0)
    batches = into.named("batch")
    assert [batch.attributes[f"pgretention.deleted.{FAVORITES}"] for batch in batches] == [2, 2, 1]
    assert {(batch.parent, batch.trace) for batch in batches} == {(run.key, run.trace)}
    assert sum(batch.seconds for batch in batches) <= run.seconds
    assert into.resource["service.name"] == "pgretention"
    assert into.resource["service.version"] == pgretention.__version__
    without_rows(into)


@pytest.mark.req("A-23")
def test_a_run_of_sessions_has_its_run_id_as_correlation_id_and_a_count_for_each_table(
    command: Command, admin: Admin
) -> None:
    plant(admin)
    with collector() as into:
        ended = command("run", ACTIVITY, "--json", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{into.url}/v1/traces")

    (run,) = into.named(ACTIVITY)
    assert run.attributes["correlationId"] == ended.result["run_id"]
    for table in EVENTS, VIEWS, SESSIONS:
        assert run.attributes[f"pgretention.deleted.{table}"] == ended.result["deleted"][str(table)]
    without_rows(into)


@pytest.mark.req("A-23")
def test_a_run_belongs_to_the_trace_of_whoever_started_it(command: Command, admin: Admin) -> None:
    old_favorites(admin, 1)
    with collector() as into:
        command("run", GUESTS, OTEL_EXPORTER_OTLP_ENDPOINT=into.url, TRACEPARENT=PARENT)

    (run,) = into.named(GUESTS)
    assert (run.trace, run.parent) == tuple(PARENT.split("-")[1:3])


def test_a_trace_of_whoever_started_it_that_makes_no_sense_is_none(command: Command) -> None:
    with collector() as into:
        assert command("run", GUESTS, OTEL_EXPORTER_OTLP_ENDPOINT=into.url, TRACEPARENT="00-zz").code == 0
    assert into.named(GUESTS)[0].parent == ""


@pytest.mark.req("A-23", "F-16")
def test_what_went_wrong_is_an_error_with_its_kind_and_constraint_and_without_keys_or_rows(
    command: Command, admin: Admin
) -> None:
    old = old_sessions(admin, 3)
    admin.execute("CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions)")
    admin.execute("INSERT INTO public.notes VALUES (%s)", [old[1]])
    with collector() as into:
        ended = command("run", ACTIVITY, OTEL_EXPORTER_OTLP_ENDPOINT=into.url)

    assert ended.code == 1
    (run,) = into.named(ACTIVITY)
    assert (run.status, run.message, run.attributes["pgretention.outcome"]) == (2, "foreign_key", "partial")
    assert run.attributes["pgretention.error.constraint"] == "notes_session_fkey"
    assert [name for name, _ in run.events] == ["rows kept"]
    without_rows(into)
    assert str(old[1]).encode() not in into.raw


def test_a_run_that_never_began_is_a_span_too(alone: Command) -> None:
    with collector() as into:
        assert alone("run", GUESTS, OTEL_EXPORTER_OTLP_ENDPOINT=into.url).code == 1
    (run,) = into.named(GUESTS)
    assert (run.status, run.message, run.attributes["deletedTotal"]) == (2, "connection", 0)
    assert b"nobody-may-know" not in into.raw


def test_a_worker_traces_every_run(command: Command, admin: Admin) -> None:
    old_favorites(admin, 1)
    with collector() as into:
        worker = Worker(command, GUEST_JOB, OTEL_EXPORTER_OTLP_ENDPOINT=into.url, TRACEPARENT=PARENT, **just_now())
        worker.until_said("job completed")
        assert worker.end().code == 0
    (run,) = into.named(GUESTS)
    assert run.parent == "", "runs of months are not part of what started the worker"


@pytest.mark.parametrize("collectors", ["nobody", "silent", "no address"])
def test_a_collector_that_does_not_take_traces_changes_nothing_of_a_run(
    command: Command, admin: Admin, collectors: str
) -> None:
    old_favorites(admin, 3)
    with silent_collector() as silent:
        address = {"nobody": "http://127.0.0.1:1", "silent": silent, "no address": "nonsense"}[collectors]
        ended = command("run", GUESTS, "--log-format", "json", OTEL_EXPORTER_OTLP_ENDPOINT=address, **TWO_A_BATCH)

    assert (ended.code, ids(admin, FAVORITES)) == (0, set())
    assert [line["event"] for line in ended.log][-2:] == ["job completed", "traces lost"]


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {}])
def test_without_a_collector_or_when_told_not_to_nothing_is_traced(command: Command, off: dict[str, str]) -> None:
    with collector() as into:
        named = {"OTEL_EXPORTER_OTLP_ENDPOINT": into.url} if off else {}
        assert command("run", GUESTS, **named, **off).code == 0
    assert into.spans == []
