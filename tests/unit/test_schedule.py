from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgretention.errors import ConfigurationError
from pgretention.schedule import Schedule

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ZONES = sorted(
    name
    for name in available_timezones()
    if (name == "UTC" or "/" in name) and not name.startswith(("posix/", "right/"))
)
zones = st.sampled_from(ZONES)
years = st.integers(1970, 2037)
hours = st.integers(0, 23)
minutes = st.integers(0, 59)
seconds = st.integers(0, 59)
real_numbers_of_seconds = st.timedeltas(timedelta(0), DAY)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def runs(schedule: Schedule, start: datetime) -> Iterator[datetime]:
    while True:
        start = schedule.next_after(start)
        yield start


def first(text: str, zone: str, start: str, count: int) -> list[str]:
    """The next runs as the wall clock of the zone shows them."""
    found = islice(runs(Schedule.parse(text, zone), at(start)), count)
    return [run.astimezone(ZoneInfo(zone)).isoformat(" ", "seconds") for run in found]


def shifts(zone: str, year: int) -> list[datetime]:
    """The days of a year that end with another offset than they began with; its first day if there are none."""
    days = [datetime(year, 1, 1, tzinfo=UTC) + n * DAY for n in range(366)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    return [days[n] for n in range(365) if offsets[n] != offsets[n + 1]] or days[:1]


def exists(wall: datetime) -> bool:
    return wall.astimezone(UTC).astimezone(wall.tzinfo).replace(tzinfo=None) == wall.replace(tzinfo=None)


def test_a_time_in_a_gap_runs_when_the_gap_ends() -> None:
    assert first("30 2 * * *", "America/New_York", "2025-03-08T12:00-05:00", 2) == [
        "2025-03-09 03:00:00-04:00",
        "2025-03-10 02:30:00-04:00",
    ]


def test_a_time_in_an_overlap_runs_in_the_first_pass_only() -> None:
    assert first("30 1 * * *", "America/New_York", "2025-11-01T12:00-04:00", 2) == [
        "2025-11-02 01:30:00-04:00",
        "2025-11-03 01:30:00-05:00",
    ]


def test_started_inside_the_second_pass_of_an_overlap_a_time_runs_the_next_day() -> None:
    assert first("30 1 * * *", "America/New_York", "2025-11-02T01:15-05:00", 1) == ["2025-11-03 01:30:00-05:00"]


def test_started_inside_the_second_pass_of_an_overlap_a_repeated_time_goes_on_in_it() -> None:
    assert first("30 * * * *", "Europe/Helsinki", "2017-10-29T03:45+02:00", 1) == ["2017-10-29 04:30:00+02:00"]
    assert first("30 * * * *", "Europe/Helsinki", "2017-10-29T03:15+02:00", 1) == ["2017-10-29 03:30:00+02:00"]


def test_a_repeated_time_follows_real_time_through_an_overlap_and_a_gap() -> None:
    assert first("*/30 1 * * *", "America/New_York", "2025-11-02T00:50-04:00", 4) == [
        "2025-11-02 01:00:00-04:00",
        "2025-11-02 01:30:00-04:00",
        "2025-11-02 01:00:00-05:00",
        "2025-11-02 01:30:00-05:00",
    ]
    assert first("*/30 * * * *", "America/New_York", "2025-03-09T01:20-05:00", 2) == [
        "2025-03-09 01:30:00-05:00",
        "2025-03-09 03:00:00-04:00",
    ]


def test_a_repeated_time_inside_a_gap_does_not_run_that_day() -> None:
    assert first("*/30 2 * * *", "America/New_York", "2025-03-08T02:15-05:00", 2) == [
        "2025-03-08 02:30:00-05:00",
        "2025-03-10 02:00:00-04:00",
    ]


def test_a_repeated_time_is_complete_where_the_clock_moves_by_half_an_hour() -> None:
    assert first("*/20 2 * * *", "Australia/Lord_Howe", "2026-04-05T01:45+10:30", 3) == [
        "2026-04-05 02:00:00+10:30",
        "2026-04-05 02:20:00+10:30",
        "2026-04-05 02:40:00+10:30",
    ]


def test_a_time_in_a_gap_at_midnight_runs_on_its_own_day() -> None:
    assert first("30 0 * * *", "America/Santiago", "2026-09-05T12:00-04:00", 2) == [
        "2026-09-06 01:00:00-03:00",
        "2026-09-07 00:30:00-03:00",
    ]
    assert first("30 23 * * *", "America/Nuuk", "2026-03-27T12:00-02:00", 3) == [
        "2026-03-27 23:30:00-02:00",
        "2026-03-28 22:59:00-02:00",
        "2026-03-29 23:30:00-01:00",
    ]


def test_a_date_that_does_not_exist_has_no_run() -> None:
    assert first("0 3 * * *", "Pacific/Apia", "2011-12-28T12:00-10:00", 2) == [
        "2011-12-29 03:00:00-10:00",
        "2011-12-31 03:00:00+14:00",
    ]


def test_wall_clock_time_is_kept_across_a_shift() -> None:
    assert first("0 6 * * *", "America/New_York", "2024-03-08T00:00-05:00", 4) == [
        "2024-03-08 06:00:00-05:00",
        "2024-03-09 06:00:00-05:00",
        "2024-03-10 06:00:00-04:00",
        "2024-03-11 06:00:00-04:00",
    ]
    assert first("0 0 1 * *", "Europe/Berlin", "2024-02-23T00:00+01:00", 3) == [
        "2024-03-01 00:00:00+01:00",
        "2024-04-01 00:00:00+02:00",
        "2024-05-01 00:00:00+02:00",
    ]


@pytest.mark.req("A-08")
def test_six_fields_have_the_seconds_first() -> None:
    assert first("0 0 3 * * *", "Europe/Moscow", "2026-01-01T02:59:59+03:00", 1) == ["2026-01-01 03:00:00+03:00"]
    assert first("45 30 2 * * *", "America/New_York", "2025-03-08T12:00-05:00", 2) == [
        "2025-03-09 03:00:45-04:00",
        "2025-03-10 02:30:45-04:00",
    ]


def test_the_instant_itself_is_never_the_answer() -> None:
    daily = Schedule.parse("30 0 3 * * *", "UTC")
    assert daily.next_after(at("2026-01-01T03:00:30Z")) == at("2026-01-02T03:00:30Z")
    assert daily.next_after(at("2026-01-01T03:00:29.999999Z")) == at("2026-01-01T03:00:30Z")


def test_answers_are_in_utc_whatever_zone_the_question_is_in() -> None:
    run = Schedule.parse("0 3 * * *", "Europe/Moscow").next_after(datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")))
    assert (run, run.tzinfo) == (at("2026-01-01T00:00:00Z"), UTC)


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        Schedule.parse("0 3 * * *", "UTC").next_after(datetime(2026, 1, 1))  # noqa: DTZ001  the refusal is the point


@pytest.mark.parametrize("weekday", ["0", "7", "SUN"])
def test_both_0_and_7_are_sunday(weekday: str) -> None:
    assert first(f"0 3 * * {weekday}", "UTC", "2026-01-01T00:00Z", 1) == ["2026-01-04 03:00:00+00:00"]


def test_a_day_of_month_and_a_weekday_mean_either() -> None:
    days = [run[:10] for run in first("0 3 13 * 5", "UTC", "2026-01-05T00:00Z", 3)]
    assert days == ["2026-01-09", "2026-01-13", "2026-01-16"]


def test_every_second_day_of_the_month_and_a_weekday_mean_either_when_the_days_are_a_range() -> None:
    days = [run[:10] for run in first("0 3 1-31/2 * 1", "UTC", "2026-01-05T12:00Z", 4)]
    assert days == ["2026-01-07", "2026-01-09", "2026-01-11", "2026-01-12"]


def test_an_impossible_day_of_month_with_a_weekday_runs_on_the_weekday() -> None:
    assert first("0 3 31 2 1", "UTC", "2026-01-05T00:00Z", 1) == ["2026-02-02 03:00:00+00:00"]


def test_a_leap_day_is_waited_for() -> None:
    assert first("0 3 29 2 *", "UTC", "2096-03-01T00:00Z", 1) == ["2104-02-29 03:00:00+00:00"]


@pytest.mark.parametrize(
    "zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Europe/Moscow"]
)
@pytest.mark.parametrize("time", ["0 0", "30 0", "15 1", "45 1", "0 2", "30 2", "0 3", "30 23"])
@pytest.mark.req("A-08")
def test_a_daily_time_runs_once_on_every_day_of_2026_to_2030(zone: str, time: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)) - MINUTE
    found = [
        run.astimezone(ZoneInfo(zone)).date()
        for run in islice(runs(Schedule.parse(f"{time} * * *", zone), start), 1826)
    ]
    assert found == [date(2026, 1, 1) + n * DAY for n in range(1826)]


@given(
    zone=zones,
    year=years,
    hour=hours,
    minute=minutes,
    second=seconds,
    into=real_numbers_of_seconds,
    data=st.data(),
)
def test_in_every_zone_a_daily_time_runs_once_on_each_day_that_exists(
    zone: str, year: int, hour: int, minute: int, second: int, into: timedelta, data: st.DataObject
) -> None:
    schedule = Schedule.parse(f"{second} {minute} {hour} * * *", zone)
    start = data.draw(st.sampled_from(shifts(zone, year))) - 2 * DAY + into
    found = list(islice(runs(schedule, start), 6))
    assert all(earlier < later for earlier, later in pairwise([start, *found]))
    shown = [run.astimezone(ZoneInfo(zone)) for run in found]
    asked = [run.replace(hour=hour, minute=minute, second=second, fold=0) for run in shown]
    assert all(run == wish or not exists(wish) for run, wish in zip(shown, asked, strict=True))
    dates = [run.date() for run in shown]
    assert dates == sorted(set(dates))
    span = range((found[-1] - found[0]) // timedelta(hours=1))
    assert set(dates) == {(found[0] + n * timedelta(hours=1)).astimezone(ZoneInfo(zone)).date() for n in span} | {
        dates[-1]
    }
    assert schedule.next_after(found[0] - timedelta(microseconds=1)) == found[0]


@given(
    zone=zones,
    year=years,
    step=st.integers(1, 59),
    hour=st.none() | hours,
    into=real_numbers_of_seconds,
    data=st.data(),
)
@settings(max_examples=25)
def test_in_every_zone_a_repeated_time_runs_at_each_minute_the_wall_shows_it(
    zone: str, year: int, step: int, hour: int | None, into: timedelta, data: st.DataObject
) -> None:
    start = data.draw(st.sampled_from(shifts(zone, year))) - DAY + into
    minute = start.replace(second=0, microsecond=0)
    expected = [
        instant
        for instant in (minute + n * MINUTE for n in range(1, 3 * 24 * 60))
        for wall in [instant.astimezone(ZoneInfo(zone))]
        if wall.second == 0 and wall.minute % step == 0 and hour in (None, wall.hour)
    ]
    schedule = Schedule.parse(f"*/{step} {'*' if hour is None else hour} * * *", zone)
    assert list(islice(runs(schedule, start), len(expected))) == expected


@given(
    zone=zones,
    year=years,
    into=st.timedeltas(timedelta(0), 366 * DAY),
    text=st.sampled_from(
        [
            "0 3 * * *",
            "30 2 * * 1",
            "15 1,23 1 * *",
            "*/7 * * * *",
            "5 * * * *",
            "* 2 29 2 *",
            "10 30 2 L * *",
            "0 */6 13 * 5",
        ]
    ),
)
def test_in_every_zone_runs_are_strictly_after_the_start_and_none_is_between(
    zone: str, year: int, into: timedelta, text: str
) -> None:
    schedule = Schedule.parse(text, zone)
    start = datetime(year, 1, 1, tzinfo=UTC) + into
    run = schedule.next_after(start)
    assert run > start
    assert schedule.next_after(start + (run - start) / 2) == run
    assert schedule.next_after(run) > run


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("'0 3 * * *'", "quotes"),
        ('"0 3 * * *"', "quotes"),
        ("@daily", "@daily"),
        ("0 3 * *", "has 4"),
        ("0 0 3 * * * 2026", "has 7"),
        ("* 0 3 * * *", "one plain number"),
        ("0,30 0 3 * * *", "one plain number"),
        ("*/5 0 3 * * *", "one plain number"),
        ("60 0 3 * * *", "one plain number"),
        ("٣ 0 3 * * *", "one plain number"),
        ("0 3 31 2 *", "no such date"),
        ("0 3 30 2 *", "no such date"),
        ("0 3 31 4,6,9,11 *", "no such date"),
        ("0 24 * * *", "hour"),
        ("60 3 * * *", "minute"),
        ("0 3 * * 8", "day-of-week"),
        ("0 3 * 13 *", "month"),
        ("0 3 * * ?", "write \\*"),
        ("0 3 */2 * 1", "1-31/2"),
        ("0 3 13 * */2", "begins with \\*"),
        ("0 25 * * *", "0 to 23"),
        ("*/0 3 * * *", "minute"),
        ("0 3 * * MONDAY", "day-of-week"),
        ("1" * 5000 + " 3 * * *", "too long"),
    ],
)
def test_text_that_is_no_schedule_is_refused_with_one_line(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refusal:
        Schedule.parse(text, "UTC")
    assert len(refusal.value.problems) == 1
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "CST",
        "EST",
        "EST5EDT",
        "MSK",
        "GMT",
        "Z",
        "+03:00",
        "Japan",
        "Europe",
        "Europe/",
        "America/Argentina",
        "Europe/Nowhere",
        "../UTC",
        "/etc/localtime",
        "right/UTC",
        "posix/Europe/Moscow",
        "Europe/Mos\x00cow",
        "Europe/" + "x" * 5000,
        "tzdata.zi",
    ],
)
def test_a_zone_that_is_no_full_iana_name_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="full IANA name"):
        Schedule.parse("0 3 * * *", zone)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "US/Central", "America/Argentina/Ushuaia", "Etc/GMT-3"])
def test_a_full_iana_name_is_a_zone(zone: str) -> None:
    assert Schedule.parse("0 3 * * *", zone).zone == zone


@pytest.mark.parametrize(
    ("zone", "meant"),
    [("europe/moscow", "Europe/Moscow"), ("Europe/Moskow", "Europe/Moscow"), ("utc", "UTC")],
)
def test_a_misspelt_zone_is_answered_with_the_right_one(zone: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean {meant}"):
        Schedule.parse("0 3 * * *", zone)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 3 * * *", "At 03:00 every day, Europe/Moscow"),
        ("30 0 3 * * *", "At 03:00 every day, 30 seconds past the minute, Europe/Moscow"),
        ("0 3 * * 7", "At 03:00 on Sunday, Europe/Moscow"),
    ],
)
def test_a_schedule_is_told_in_words(text: str, words: str) -> None:
    assert Schedule.parse(text, "Europe/Moscow").words() == words


@given(
    text=st.text() | st.lists(st.text("0123456789*,-/LW#?@MONSU'", min_size=1, max_size=6), max_size=7).map(" ".join),
    zone=zones | st.text(),
)
@settings(max_examples=500)
def test_any_text_is_a_schedule_that_fires_and_has_words_or_one_line_of_refusal(text: str, zone: str) -> None:
    start = at("2026-01-01T00:00:00Z")
    try:
        schedule = Schedule.parse(text, zone)
    except ConfigurationError as error:
        problems = error.problems
    else:
        assert schedule.next_after(start) > start
        problems = (schedule.words(),)
    assert [len(line.splitlines()) for line in problems] == [1]
