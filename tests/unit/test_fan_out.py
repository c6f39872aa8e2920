from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO

import pytest
import structlog

from pgretention.report import Fact
from pgretention.sinks import logs
from pgretention.sinks.fan_out import fan_out
from tests.support.facts import ACTIVITY, RUN, batch, finished, started

STORY: list[Fact] = [started(ACTIVITY), batch(ACTIVITY), finished(ACTIVITY, rows=5000, batches=1)]


class Broken:
    """Fails at everything it is told."""

    def __init__(self) -> None:
        self.heard: list[Fact] = []

    def __call__(self, fact: Fact) -> None:
        self.heard.append(fact)
        raise KeyError("a secret")


@pytest.fixture
def log() -> Iterator[StringIO]:
    stream = StringIO()
    logs.configure("json", "debug", stream)
    yield stream
    structlog.reset_defaults()


def test_every_sink_hears_every_fact_in_order() -> None:
    first: list[Fact] = []
    second: list[Fact] = []
    observe = fan_out([first.append, second.append])
    for fact in STORY:
        observe(fact)
    assert first == second == STORY


@pytest.mark.usefixtures("log")
def test_a_sink_that_raises_stops_neither_the_run_nor_the_sinks_after_it() -> None:
    heard: list[Fact] = []
    observe = fan_out([Broken(), heard.append])
    for fact in STORY:
        observe(fact)
    assert heard == STORY


@pytest.mark.usefixtures("log")
def test_a_sink_that_raises_is_asked_again() -> None:
    broken = Broken()
    observe = fan_out([broken])
    for fact in STORY:
        observe(fact)
    assert broken.heard == STORY


def test_a_sink_that_raises_is_logged_once_a_run_by_its_name_and_the_type_of_the_error_only(log: StringIO) -> None:
    observe = fan_out([Broken()])
    for fact in STORY:
        observe(fact)
    (line,) = log.getvalue().splitlines()
    said = json.loads(line)
    said.pop("timestamp")
    assert said == {
        "level": "error",
        "event": "sink failed",
        "job": "activity-retention",
        "run_id": RUN,
        "sink": "Broken",
        "error_type": "KeyError",
    }


def test_the_next_run_logs_a_sink_that_still_raises(log: StringIO) -> None:
    observe = fan_out([Broken()])
    for fact in STORY * 2:
        observe(fact)
    assert len(log.getvalue().splitlines()) == 2


def test_two_broken_sinks_are_both_logged(log: StringIO) -> None:
    def also_broken(_: Fact) -> None:
        raise ValueError

    observe = fan_out([Broken(), also_broken])
    for fact in STORY:
        observe(fact)
    assert [json.loads(line)["error_type"] for line in log.getvalue().splitlines()] == ["KeyError", "ValueError"]


def test_a_log_that_cannot_be_written_stops_nothing(log: StringIO) -> None:
    log.close()
    heard: list[Fact] = []
    observe = fan_out([logs.LogSink(), heard.append])
    for fact in STORY:
        observe(fact)
    assert heard == STORY


@pytest.mark.usefixtures("log")
def test_an_interrupt_is_no_error_of_a_sink() -> None:
    def interrupted(_: Fact) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fan_out([interrupted])(STORY[0])
