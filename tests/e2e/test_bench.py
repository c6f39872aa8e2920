"""The benchmarks measure what they say they do, on few rows; how long anything takes is nothing to a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pytest

from bench import page
from bench.contenders import ALL, OURS, UNBATCHED
from bench.data import Dataset
from bench.goals import GOALS
from bench.measures import MEASURES, NOBODY
from bench.rig import Rig, WrongRows
from bench.samples import Results
from bench.tables import ACTIVITY, FAVORITES
from pgretention.demo.binaries import find_binaries

ROOT = Path(__file__).parents[2]

NAMES = {contender.name for contender in ALL}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every measure, once; it ends well only if each contender left exactly the rows that are not expired."""
    output = tmp_path_factory.mktemp("bench") / "new" / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--scale", "0.001", "--seed", "1"]
    done = subprocess.run([*command, "--output", str(output)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert page.goals(Results.read(output)) in done.stdout
    return Results.read(output)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig.up(find_binaries()) as rig:
        yield rig


@pytest.mark.timeout(500)
@pytest.mark.parametrize("measure", ["activity", "favorites"])
def test_every_contender_deletes_the_rows_of_both_jobs(results: Results, measure: str) -> None:
    samples = [sample for sample in results.samples if sample.measure == measure]
    assert {sample.contender for sample in samples} == NAMES
    rows = {"activity": 4_750 * 12, "favorites": 4_000}[measure]
    assert {sample.rows for sample in samples} == {rows}
    assert all(sample.values["wal_bytes_per_row"] > 0 for sample in samples)


@pytest.mark.timeout(500)
def test_there_is_a_figure_for_every_goal_and_every_figure_is_above_zero(results: Results) -> None:
    assert {sample.measure for sample in results.samples} == set(MEASURES)
    spreads = [goal.spread(results) for goal in GOALS]
    assert all(spread is not None and 0 < spread.low <= spread.median <= spread.high for spread in spreads)
    assert NOBODY in {sample.contender for sample in results.samples}


@pytest.mark.timeout(500)
def test_the_page_is_renewed_between_its_markers_and_shows_its_charts(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "performance.md"
    written = (ROOT / "docs" / "performance.md").read_text("utf-8")
    file.write_text(written, "utf-8")
    page.write(results, file, results)
    renewed = file.read_text("utf-8")
    opening = written.partition("<!-- measured")[0]
    assert renewed.startswith(opening)
    assert renewed.count(page.goals(results)) == 2
    for chart in "activity", "favorites", "snapshot":
        assert f"(performance/{chart}.svg)" in renewed
        assert ElementTree.parse(tmp_path / "performance" / f"{chart}.svg").getroot().tag.endswith("svg")


@pytest.mark.req("H-07")
def test_the_memory_of_a_run_does_not_grow_with_the_backlog(rig: Rig) -> None:
    few, many = (rig.turn(OURS, Dataset(FAVORITES, old, old + 10)).used for old in (2_500, 125_000))
    assert (len(few.ended), len(many.ended)) == (2, 100)
    assert many.peak_rss < 1.1 * few.peak_rss


EVENTS = "user_activity.action_events"


@pytest.mark.parametrize(
    ("data", "statement"),
    [
        (
            Dataset(ACTIVITY, 20, 40),
            f"DELETE FROM {EVENTS} WHERE id = (SELECT min(id::text)::uuid FROM {EVENTS})",
        ),
        (Dataset(ACTIVITY, 20, 40), f"UPDATE {EVENTS} SET payload = NULL"),
        (Dataset(FAVORITES, 20, 40), "DELETE FROM favorites.favorites WHERE user_id IS NOT NULL"),
    ],
    ids=["an event too many is gone", "what is left is changed", "a user's favorites are gone"],
)
def test_a_turn_that_leaves_other_rows_than_it_should_is_thrown_away(rig: Rig, data: Dataset, statement: str) -> None:
    @contextmanager
    def meddling(dsn: str) -> Generator[None]:
        yield
        with psycopg.connect(dsn) as connection:
            connection.execute(statement.encode())

    with pytest.raises(WrongRows, match=UNBATCHED.name):
        rig.turn(UNBATCHED, data, beside=meddling)


def test_a_turn_that_leaves_expired_rows_is_thrown_away(rig: Rig) -> None:
    @contextmanager
    def holding(dsn: str) -> Generator[None]:
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE favorites.favorites SET user_id = id WHERE user_id IS NULL AND id::text < '5'")
            connection.commit()
            yield
            connection.execute("UPDATE favorites.favorites SET user_id = NULL WHERE user_id = id")

    with pytest.raises(WrongRows):
        rig.turn(UNBATCHED, Dataset(FAVORITES, 20, 40), beside=holding)
