from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgretention.config import format_duration, parse_duration
from pgretention.errors import ConfigurationError

WRITTEN = {
    "365.00:00:00": timedelta(days=365),
    "1.02:03:04": timedelta(days=1, hours=2, minutes=3, seconds=4),
    "00:30:00": timedelta(minutes=30),
    "23:59:59": timedelta(hours=23, minutes=59, seconds=59),
    "P365D": timedelta(days=365),
    "P2W": timedelta(weeks=2),
    "PT30M": timedelta(minutes=30),
    "P1DT2H3M4S": timedelta(days=1, hours=2, minutes=3, seconds=4),
    "PT36H": timedelta(hours=36),
    "365d": timedelta(days=365),
    "2w": timedelta(weeks=2),
    "30m": timedelta(minutes=30),
    "1m": timedelta(minutes=1),
    "1h30m": timedelta(minutes=90),
    "1w2d3h4m5s": timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5),
    "90s": timedelta(seconds=90),
}

REFUSED = {
    "no unit": ["365", "0", "-90", "+5", "1.5", "365."],
    "months and years": [
        "P1M",
        "P1Y",
        "P1Y2M",
        "P1MT1H",
        "P1M2D",
        "1M",
        "3mo",
        "12months",
        "12 months",
        "1y",
        "2 years",
    ],
    "longer than zero": ["0d", "00:00:00", "0.00:00:00", "PT0S", "P0D", "-1d", "-01:00:00", "-P1D"],
    "two digits each": [
        "24:00:00",
        "00:90:00",
        "23:59:60",
        "365.24:00:00",
        "365.0:00:00",
        "1:00:00",
        "00:30",
        "1.2.00:00:00",
    ],
    "too long": ["9" * 12 + "d", "9" * 999 + "w", "9" * 999 + ".00:00:00"],
    "not a duration": [
        *["", "d", "P", "PT", "P1DT", "T1H", "1H", "90 D", "90 d", " 5d", "5d ", "5d\n", "1m2h", "1d1d", "1h 30m"],
        *["1.5d", "P1.5D", "PT1,5H", "p365d", "pt30m", "P365", "365D", "00:30:00.5", "nan", "inf", ".inf", "1e3d"],
        *["٣d", "1_000d", "0x1d", "30min", "1day", "forever", "off", "9" * 5000 + "d", "\0", "d" * 5000],
    ],
}


@pytest.mark.parametrize("text", WRITTEN)
def test_each_form_says_how_long(text: str) -> None:
    assert parse_duration(text) == WRITTEN[text]


@pytest.mark.parametrize(("why", "text"), [(why, text) for why, texts in REFUSED.items() for text in texts])
@pytest.mark.req("H-05")
def test_whatever_has_no_exact_length_longer_than_zero_is_refused(why: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_duration(text)


@given(st.integers(1, 3_000_000_000).map(lambda seconds: timedelta(seconds=seconds)))
def test_a_formatted_duration_reads_back_as_itself(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**5), st.integers(1, 10**5))
def test_the_iso_and_the_short_form_add_up_their_units(days: int, hours: int, minutes: int, seconds: int) -> None:
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    assert parse_duration(f"P{days}DT{hours}H{minutes}M{seconds}S") == length
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == length


@given(st.text() | st.text("0123456789.:PTWDHMSwdhmsY -+", max_size=20))
def test_any_text_is_a_duration_longer_than_zero_or_one_line_of_refusal(text: str) -> None:
    try:
        length = parse_duration(text)
    except ConfigurationError as error:
        problems = error.problems
    else:
        problems = (format_duration(length),)
        assert length > timedelta(0)
    assert [len(line.splitlines()) for line in problems] == [1]
