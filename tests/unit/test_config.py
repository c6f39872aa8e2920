from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pgretention.config import KEYS, ActivityRetentionSettings, GuestFavoritesSettings, HostPort, Settings, load
from pgretention.config.keys import Key
from pgretention.errors import ConfigurationError
from pgretention.job import Brake, Pace, Safety
from pgretention.schedule import Schedule

BATCH = "ActivityRetention:BatchSize"
PERIOD = "ActivityRetention:RetentionPeriod"
VALID = {
    "ConnectionStrings:UserActivity": "host=db dbname=activity",
    "ConnectionStrings:Favorites": "postgresql://worker@db/favorites",
    "ActivityRetention:Enabled": "false",
    PERIOD: "90d",
    BATCH: "10",
    "ActivityRetention:MaxBatchesPerRun": "20",
    "ActivityRetention:Workers": "3",
    "ActivityRetention:MaxRunDuration": "PT5M",
    "ActivityRetention:RetentionSchedule": "30 0 4 * * *",
    "ActivityRetention:TimeZone": "Asia/Tokyo",
    "Favorites:GuestRetention:Enabled": "FALSE",
    "Favorites:GuestRetention:Days": "30",
    "Favorites:GuestRetention:BatchSize": "7",
    "Favorites:GuestRetention:Workers": "2",
    "Favorites:GuestRetention:Cron": "15 2 * * 1",
    "Favorites:GuestRetention:TimeZone": "Europe/Berlin",
    "Favorites:GuestRetention:MaxRunDuration": "00:01:00",
    "ActivityRetention:BatchPause": "250ms",
    "ActivityRetention:MaxReplicaLag": "5s",
    "ActivityRetention:MaxWalRate": "20MB",
    "ActivityRetention:TargetBatchDuration": "1s",
    "ActivityRetention:MaxExpiredRows": "1000",
    "ActivityRetention:MaxExpiredShare": "25%",
    "ActivityRetention:MinimumRetention": "60d",
    "Favorites:GuestRetention:BatchPause": "2s",
    "Favorites:GuestRetention:MaxReplicaLag": "1m",
    "Favorites:GuestRetention:MaxWalRate": "3GB",
    "Favorites:GuestRetention:TargetBatchDuration": "1500ms",
    "Favorites:GuestRetention:MaxExpiredRows": "7",
    "Favorites:GuestRetention:MaxExpiredShare": "0.5%",
    "Favorites:GuestRetention:MinimumRetention": "30d",
    "Safety:Override": "cutoff-jump, clocks-apart",
    "Http:Listen": "[::1]:8000",
    "Http:Token": "0123456789abcdef",
    "Http:Hosts": "page.example, db-1",
    "History:File": "/var/lib/pgretention/history",
    "Metrics:Pushgateway": "http://gateway:9091",
    "Host:ShutdownTimeout": "40s",
    "Host:MisfireGrace": "PT2H",
}


def given_by_flags(*overrides: str) -> Settings:
    return load(None, {}, overrides)


def problems(*overrides: str, environ: Mapping[str, str] | None = None, file: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refusal:
        load(file, environ or {}, overrides)
    return refusal.value.problems


def shown(settings: Settings) -> dict[str, tuple[str, str]]:
    return {value.key: (value.shown, value.source) for value in settings.effective()}


@pytest.mark.req("A-07")
@pytest.mark.req("A-08")
@pytest.mark.req("F-04")
def test_the_defaults_are_those_of_the_specifications() -> None:
    assert load(None, {}, ()) == Settings(
        user_activity_dsn=None,
        favorites_dsn=None,
        activity_retention=ActivityRetentionSettings(
            enabled=True,
            retention=timedelta(days=365),
            batch_size=5000,
            max_batches_per_run=200,
            workers=1,
            max_run_duration=timedelta(minutes=30),
            schedule=Schedule("0 0 3 * * *", "Europe/Moscow"),
            pace=Pace(),
            safety=Safety(),
        ),
        guest_favorites=GuestFavoritesSettings(
            enabled=True,
            retention=timedelta(days=365),
            batch_size=1000,
            workers=1,
            max_run_duration=timedelta(minutes=10),
            schedule=Schedule("0 3 * * *", "UTC"),
            pace=Pace(),
            safety=Safety(),
        ),
        http_listen=HostPort("127.0.0.1", 9477),
        http_token=None,
        http_hosts=frozenset(),
        history_file=None,
        pushgateway=None,
        shutdown_timeout=timedelta(seconds=25),
        misfire_grace=timedelta(hours=1),
    )


@pytest.mark.req("H-06")
def test_the_default_address_is_the_loopback() -> None:
    assert str(load(None, {}, ()).http_listen) == "127.0.0.1:9477"


@pytest.mark.req("A-08")
@pytest.mark.req("F-04")
def test_every_setting_reaches_its_field() -> None:
    loaded = given_by_flags(*(f"{key}={value}" for key, value in VALID.items()))
    assert loaded.user_activity_dsn is not None
    assert loaded.favorites_dsn is not None
    assert loaded.user_activity_dsn.reveal() == "host=db dbname=activity"
    assert loaded.favorites_dsn.reveal() == "postgresql://worker@db/favorites"
    assert loaded.activity_retention == ActivityRetentionSettings(
        enabled=False,
        retention=timedelta(days=90),
        batch_size=10,
        max_batches_per_run=20,
        workers=3,
        max_run_duration=timedelta(minutes=5),
        schedule=Schedule("30 0 4 * * *", "Asia/Tokyo"),
        pace=Pace(timedelta(milliseconds=250), timedelta(seconds=5), 20 << 20, timedelta(seconds=1)),
        safety=Safety(1000, 0.25, timedelta(days=60), frozenset({Brake.CLOCKS_APART, Brake.CUTOFF_JUMP})),
    )
    assert loaded.guest_favorites == GuestFavoritesSettings(
        enabled=False,
        retention=timedelta(days=30),
        batch_size=7,
        workers=2,
        max_run_duration=timedelta(minutes=1),
        schedule=Schedule("15 2 * * 1", "Europe/Berlin"),
        pace=Pace(timedelta(seconds=2), timedelta(minutes=1), 3 << 30, timedelta(milliseconds=1500)),
        safety=Safety(7, 0.005, timedelta(days=30), frozenset({Brake.CLOCKS_APART, Brake.CUTOFF_JUMP})),
    )
    assert loaded.http_listen == HostPort("::1", 8000)
    assert loaded.http_token is not None
    assert loaded.http_token.reveal() == "0123456789abcdef"
    assert loaded.http_hosts == {"page.example", "db-1"}
    assert loaded.history_file == Path("/var/lib/pgretention/history")
    assert loaded.pushgateway == "http://gateway:9091"
    assert (loaded.shutdown_timeout, loaded.misfire_grace) == (timedelta(seconds=40), timedelta(hours=2))


def test_effective_values_stand_in_the_order_of_the_keys_and_say_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({BATCH: 10, PERIOD: "90d", "Http:Listen": "off"}))
    loaded = load(file, {"activityretention__batchsize": "20", "HTTP__LISTEN": "localhost:1"}, ["http:listen=[::1]:2"])
    assert [value.key for value in loaded.effective()] == [key.path for key in KEYS]
    values = shown(loaded)
    assert values[PERIOD] == ("90.00:00:00", f"file {file}")
    assert values[BATCH] == ("20", "environment activityretention__batchsize")
    assert values["Http:Listen"] == ("[::1]:2", "--set")
    assert values["Favorites:GuestRetention:Days"] == ("365", "default")
    assert values["ConnectionStrings:Favorites"] == ("libpq environment", "default")


def test_a_default_is_a_value_that_its_own_reader_accepts() -> None:
    for key in KEYS:
        if key.default is not None:
            assert key.read(key.show(key.default)) == key.default


def test_every_shown_value_is_one_that_its_own_reader_reads_back() -> None:
    for value in given_by_flags(*(f"{key}={value}" for key, value in VALID.items())).effective():
        key = next(key for key in KEYS if key.path == value.key)
        if not key.path.startswith("ConnectionStrings") and key.path != "Http:Token":
            assert key.show(key.read(value.shown)) == value.shown


def load_native(path: str) -> None:
    """The setting as YAML's or TOML's own false, which is no word."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "settings.json")
        file.write_text(json.dumps({path: False}))
        load(file, {}, ())


OFF = [key for key in KEYS if key.accepts.endswith(", or off") and key.path not in {"Http:Listen", "Http:Token"}]


@pytest.mark.parametrize("key", OFF, ids=lambda key: key.path)
def test_what_can_be_off_is_off_by_default_and_says_how_to_switch_it_off(key: Key[object]) -> None:
    assert shown(load(None, {}, ()))[key.path][0] == shown(given_by_flags(f"{key.path}=off"))[key.path][0] == "off"
    with pytest.raises(ConfigurationError) as refusal:
        load_native(key.path)
    assert 'write "off"' in str(refusal.value)


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("BatchPause", "0ms", "is not a duration"),
        ("BatchPause", "5", "no unit"),
        ("BatchPause", "3600001ms", "longer than 01:00:00"),
        ("MaxReplicaLag", "2h", "longer than 01:00:00"),
        ("MaxWalRate", "20", "is not a size"),
        ("MaxWalRate", "20M", "is not a size"),
        ("MaxWalRate", "20 MB", "is not a size"),
        ("MaxWalRate", "0MB", "is not a size"),
        ("MaxExpiredRows", "0", "out of range"),
        ("MaxExpiredShare", "25", "percentage"),
        ("MaxExpiredShare", "0%", "percentage"),
        ("MaxExpiredShare", "100.1%", "percentage"),
        ("MaxExpiredShare", "-5%", "percentage"),
        ("MinimumRetention", "90", "no unit"),
    ],
)
def test_what_holds_runs_back_is_read_strictly(setting: str, value: str, why: str) -> None:
    (line,) = problems(f"ActivityRetention:{setting}={value}")
    assert line.startswith(f"ActivityRetention:{setting} (--set): ")
    assert why in line


@pytest.mark.req("H-05", "H-06")
def test_a_token_is_shown_to_nobody_and_whether_there_is_one_to_everybody() -> None:
    for value, seen in ("0123456789abcdef", "***"), ("off", "off"):
        loaded = given_by_flags(f"Http:Token={value}")
        assert shown(loaded)["Http:Token"] == (seen, "--set")
        assert "0123456789abcdef" not in repr(loaded)
    assert shown(load(None, {}, ()))["Http:Token"] == ("not set", "default")
    with pytest.raises(ConfigurationError, match='write "off"'):
        load_native("Http:Token")


@pytest.mark.req("H-05", "H-06")
@pytest.mark.parametrize("value", ["geheim", "geheim-geheim-g", "geheim geheim geheim", "geheimgeheimgeheimgeheimß"])
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused_and_not_shown(value: str) -> None:
    (line,) = problems(f"Http:Token={value}")
    assert line.startswith("Http:Token (--set): ")
    assert line.endswith("allowed: 16 characters or more, or off")
    assert "geheim" not in line


@pytest.mark.parametrize("value", ["page.example:80", "http://page.example", "a,,b", "*", "page.example/"])
def test_the_names_of_the_page_are_names_of_hosts(value: str) -> None:
    (line,) = problems(f"Http:Hosts={value}")
    assert line.startswith("Http:Hosts (--set): ")


def test_a_history_that_this_user_may_not_look_at_is_for_the_worker_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "is_dir", closed)
    assert given_by_flags("History:File=/somebody/history").history_file == Path("/somebody/history")


def test_a_history_is_a_file_and_no_folder(tmp_path: Path) -> None:
    (line,) = problems(f"History:File={tmp_path}")
    assert "is a folder" in line
    assert given_by_flags(f"History:File={tmp_path}/runs").history_file == tmp_path / "runs"


@pytest.mark.parametrize("value", ["gateway:9091", "http://u:geheim@gateway:9091", "ftp://gateway", "http://", "true"])
def test_a_pushgateway_is_an_address_without_secrets(value: str) -> None:
    (line,) = problems(f"Metrics:Pushgateway={value}")
    assert line.startswith("Metrics:Pushgateway (--set): ")
    assert "geheim" not in line


@pytest.mark.parametrize(
    ("value", "why"), [("cutoff", "did you mean cutoff-jump?"), ("cutoff-jump,", "is none of them"), ("all", "none")]
)
def test_a_brake_that_is_overridden_is_named_exactly(value: str, why: str) -> None:
    (line,) = problems(f"Safety:Override={value}")
    assert why in line
    assert "clocks-apart, cutoff-jump" in line


@given(st.dictionaries(st.sampled_from(["file", "environment", "--set"]), st.integers(1, 50_000)))
def test_flags_win_over_the_environment_over_the_file_over_the_default(given_by: dict[str, int]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder, "settings.json")
        file.write_text(json.dumps({BATCH: given_by["file"]} if "file" in given_by else {}))
        environ = {"ActivityRetention__BatchSize": str(given_by["environment"])} if "environment" in given_by else {}
        flags = [f"{BATCH}={given_by['--set']}"] if "--set" in given_by else []
        loaded = load(file, environ, flags)
    winner = next((source for source in ("--set", "environment", "file") if source in given_by), "default")
    assert loaded.activity_retention.batch_size == given_by.get(winner, 5000)
    assert shown(loaded)[BATCH][1].startswith(winner)


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        (BATCH, 1, 50_000),
        ("ActivityRetention:MaxBatchesPerRun", 1, 1_000_000),
        ("Favorites:GuestRetention:Days", 1, 36_500),
        ("Favorites:GuestRetention:BatchSize", 1, 50_000),
    ],
)
@pytest.mark.req("A-07")
@pytest.mark.req("F-04")
def test_numbers_keep_to_their_bounds_and_the_line_names_them(key: str, low: int, high: int) -> None:
    assert shown(given_by_flags(f"{key}={low}"))[key][0] == str(low)
    assert shown(given_by_flags(f"{key}={high}"))[key][0] == str(high)
    for outside in (low - 1, high + 1, -90, 800_000_000, "9" * 30, "9" * 5000):
        (line,) = problems(f"{key}={outside}")
        assert line.startswith(f"{key} (--set): ")
        assert f"{low} to {high}" in line


@pytest.mark.parametrize(
    ("key", "longest"),
    [
        (PERIOD, timedelta(days=36_500)),
        ("ActivityRetention:MaxRunDuration", timedelta(days=7)),
        ("Favorites:GuestRetention:MaxRunDuration", timedelta(days=7)),
    ],
)
@pytest.mark.req("A-07")
@pytest.mark.req("F-04")
def test_durations_keep_to_their_bounds_and_the_line_names_them(key: str, longest: timedelta) -> None:
    assert shown(given_by_flags(f"{key}=1s"))[key][0] == "00:00:01"
    assert shown(given_by_flags(f"{key}={longest.days}d"))[key][0] == f"{longest.days}.00:00:00"
    for outside in (f"{longest.days}.00:00:01", "800000d", "999999999d", "3000000000 days", "0s", "-1d"):
        (line,) = problems(f"{key}={outside}")
        assert line.startswith(f"{key} (--set): ")
        assert f"up to {longest.days} days" in line


@pytest.mark.parametrize("value", ["0", "-90", "", "3", "'90'", '"90d"', "90 D", "1M", "1.5", ".inf", "null", "P1M"])
@pytest.mark.req("H-05")
def test_a_retention_that_is_no_exact_length_is_refused(value: str) -> None:
    (line,) = problems(f"{PERIOD}={value}")
    assert line.startswith(f"{PERIOD} (--set): ")


@pytest.mark.parametrize("value", ["0", "1", "yes", "no", "on", "off", "", " False ", "f", "null", "'true'"])
def test_a_boolean_is_true_or_false_and_nothing_else(value: str) -> None:
    (line,) = problems(f"ActivityRetention:Enabled={value}")
    assert line.endswith("allowed: true or false")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("TRUE", True)])
def test_a_boolean_is_read_in_any_case(text: str, value: object) -> None:
    assert given_by_flags(f"ActivityRetention:Enabled={text}").activity_retention.enabled is value


@pytest.mark.parametrize(
    "value", ["5.0", "5_000", " 5", "5 ", "+5", "007", "0x10", "1e3", "٣", "five", "true", "5\n", "'5'", ""]
)
def test_a_whole_number_is_plain_digits_and_nothing_else(value: str) -> None:
    (line,) = problems(f"{BATCH}={value}")
    assert line.startswith(f"{BATCH} (--set): ")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("localhost:65535", "localhost", 65535),
        ("metrics.example-1.org:1", "metrics.example-1.org", 1),
        ("[::]:9477", "::", 9477),
    ],
)
def test_an_address_is_a_host_and_a_port(value: str, host: str, port: int) -> None:
    assert given_by_flags(f"Http:Listen={value}").http_listen == HostPort(host, port)
    assert str(HostPort(host, port)) == value


@pytest.mark.parametrize(
    "value",
    [
        "localhost",
        "9477",
        ":9477",
        "*:9477",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "localhost:+1",
        "localhost:http",
        "::1:9477",
        "[::1]",
        "[::g]:1",
        "[[::1]]:1",
        "[]:1",
        "127.0.0.256:1",
        "127.1:1",
        "http://localhost:1",
        "a b:1",
        "OFF",
        "false",
        "none",
        "",
    ],
)
def test_what_nobody_can_listen_on_is_refused(value: str) -> None:
    (line,) = problems(f"Http:Listen={value}")
    assert line.endswith("allowed: host:port with a port from 1 to 65535, or off")


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("ActivityRetention:RetentionSchedule=@daily", "@daily"),
        ("ActivityRetention:RetentionSchedule=0 3 31 2 *", "no such date"),
        ("Favorites:GuestRetention:Cron='0 3 * * *'", "quotes"),
        ("Favorites:GuestRetention:Cron=* 0 3 * * *", "one plain number"),
        ("ActivityRetention:TimeZone=MSK", "IANA"),
        ("Favorites:GuestRetention:TimeZone=europe/berlin", "did you mean Europe/Berlin?"),
    ],
)
@pytest.mark.req("A-08")
@pytest.mark.req("F-04")
def test_a_schedule_or_zone_that_cannot_be_is_refused_by_name(override: str, why: str) -> None:
    (line,) = problems(override)
    assert line.startswith(f"{override.partition('=')[0]} (--set): ")
    assert why in line


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("ActivityRetention:BatchSzie", BATCH),
        ("ActivityRetention:batch_size", BATCH),
        ("ActivityRetention__BatchSize", BATCH),
        ("ActivityRetentoin:BatchSize", BATCH),
        ("BatchSize", f"{BATCH} or Favorites:GuestRetention:BatchSize"),
        ("retention_day", PERIOD),
        ("Favorites:Days", "Favorites:GuestRetention:Days"),
        ("Favorites:GuestRetenton", "Favorites:GuestRetention"),
        ("ConnectionString:Favorites", "ConnectionStrings:Favorites"),
        ("Listen", "Http:Listen"),
    ],
)
@pytest.mark.req("H-05")
def test_a_misspelt_setting_is_an_error_that_says_what_was_meant(wrong: str, meant: str) -> None:
    assert problems(f"{wrong}=1") == (f"{wrong} (--set): no such setting; did you mean {meant}?",)


def test_a_setting_like_no_other_is_an_error_that_says_where_they_are_listed() -> None:
    assert problems("Logging=1") == ("Logging (--set): no such setting; `pgretention config` lists them all",)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("ActivityRetentoin__BatchSize", "ActivityRetention__BatchSize"),
        ("ACTIVITYRETENTION__BATCHSZIE", "ActivityRetention__BatchSize"),
        ("ActivityRetention_BatchSize", "ActivityRetention__BatchSize"),
        ("ActivityRetention___BatchSize", "ActivityRetention__BatchSize"),
        ("FAVOURITES__GUESTRETENTION__DAYS", "Favorites__GuestRetention__Days"),
        ("FAVOURITES__DAYS", "Favorites__GuestRetention__Days"),
        ("ConnectionString__Favorites", "ConnectionStrings__Favorites"),
        ("Https__Listen", "Http__Listen"),
        ("PGRETENTION_CONFG", "PGRETENTION_CONFIG"),
        ("pgretention_config", "PGRETENTION_CONFIG"),
    ],
)
@pytest.mark.req("H-05")
def test_a_misspelt_variable_is_an_error_that_says_what_was_meant(wrong: str, meant: str) -> None:
    assert problems(environ={wrong: "1"}) == (f"{wrong} (environment): no such setting; did you mean {meant}?",)


@pytest.mark.parametrize(
    "name", ["Favorites__Theme", "ConnectionStrings__Default", "HTTP__", "ActivityRetention__", "http__port"]
)
def test_an_unknown_variable_in_a_section_of_ours_is_an_error(name: str) -> None:
    (line,) = problems(environ={name: "1"})
    assert line.startswith(f"{name} (environment): no such setting; ")


def test_variables_of_others_are_left_alone() -> None:
    names = [
        "FOO__BAR",
        "XPC_FLAGS",
        "__CF_USER_TEXT_ENCODING",
        "HTTPS__PORT",
        "HTTP_LISTEN",
        "HTTP_PROXY",
        "PGHOST",
        "_",
        "__",
    ]
    names += [
        "PGRETENTION_CONFIG",
        "PGRETENTION_PORT",
        "PGRETENTION_SERVICE_HOST",
        "PGRETENTION_PORT_9477_TCP_ADDR",
        "",
    ]
    names += [
        "ACTIVITY_RETENTION_SERVICE_HOST",
        "ACTIVITY_RETENTION_PORT",
        "FAVORITES_SERVICE_PORT",
        "FAVORITES_PORT",
        "HTTP",
    ]
    names += ["ACTIVITYRETENTION", "Logging__LogLevel__Default", "ASPNETCORE__ENVIRONMENT", "BASH_FUNC_which%%"]
    assert load(None, dict.fromkeys(names, "x"), ()) == load(None, {}, ())


def test_a_setting_given_twice_by_one_source_is_an_error() -> None:
    assert problems(environ={"ActivityRetention__BatchSize": "1", "ACTIVITYRETENTION__BATCHSIZE": "2"}) == (
        (
            f"{BATCH} (environment ActivityRetention__BatchSize): given twice, "
            "also by environment ACTIVITYRETENTION__BATCHSIZE; keep one"
        ),
    )
    assert problems(f"{BATCH}=1", f"{BATCH.lower()}=2") == (f"{BATCH} (--set): given twice; keep one",)


def test_a_flag_without_a_value_is_refused_without_being_repeated() -> None:
    (line,) = problems("postgresql://worker:hunter2@db/activity")
    assert line == "--set (number 1): has no =; write it as --set ActivityRetention:BatchSize=1000"


@pytest.mark.req("H-05")
def test_all_problems_are_shown_at_once_in_the_order_of_the_sources(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('ActivityRetention.BatchSize = 0\nFoo = 1\n[Http]\nListen = "nowhere"\n')
    lines = problems(f"{PERIOD}=365", "nonsense", environ={"Favorites__GuestRetention__Days": "0"}, file=file)
    assert [line.partition(": ")[0] for line in lines] == [
        f"{BATCH} (file {file})",
        f"Foo (file {file})",
        f"Http:Listen (file {file})",
        "Favorites:GuestRetention:Days (environment Favorites__GuestRetention__Days)",
        f"{PERIOD} (--set)",
        "--set (number 2)",
    ]


def test_a_value_that_another_source_overrides_is_checked_all_the_same() -> None:
    (line,) = problems(f"{BATCH}=10", environ={"ActivityRetention__BatchSize": "0"})
    assert line.startswith(f"{BATCH} (environment ActivityRetention__BatchSize): is out of range")


def test_reading_no_file_loads_no_format_and_no_driver() -> None:
    code = (
        "import sys; from pgretention.config import load; load(None, {}, []);"
        "sys.exit(','.join({'yaml', 'tomllib', 'json', 'psycopg', 'pydantic'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr.strip() == ""
    )


SECRET = "hunter2-Tr0ub4dor"
secret_values = st.sampled_from(
    [
        f"host=db password={SECRET}",
        f"host=db password={SECRET} sslmod=require",
        f"host=db password=ab {SECRET}",
        f"host=db password=ab {SECRET}=1",
        f"host=db password='{SECRET}",
        f"dbname=postgresql://u:{SECRET}@db/a host=db",
        f"postgresql://u:{SECRET}",
        f"postgresql://u:{SECRET}@db/a",
        f"postgresql://u:{SECRET}@db/a?sslmod=require",
        f"postgresql://u:ab@{SECRET}@db/a",
        f"postgresql://u:ab/{SECRET}@db/a",
        f"postgresql://u:1/{SECRET}@db/a",
        f"postgresql://u:{SECRET}%zz@db/a",
        f"postgresql://u:a {SECRET}@db/a",
        f"postgresql://u:a?{SECRET}=1@db/a",
        f"postgresql://db/a?password={SECRET}&sslmod=1",
        f"postgres:/u:{SECRET}@db/a",
        f"jdbc:postgresql://u:{SECRET}@db/a",
        f"Host=db;Username=u;Password={SECRET}",
        f" postgresql://u:{SECRET}@db/a",
        f'"postgresql://u:{SECRET}@db/a"',
        f"postgresql://u:{SECRET}\n@db/a",
        f"postgresql://u:{SECRET}\0@db/a",
        f"postgresql://u:{SECRET}\ud800@db/a",
    ]
)
names = st.sampled_from(
    [key.path for key in KEYS] + ["ConnectionStrings:UserActivty", "Foo", "Http", "ConnectionStrings"]
)
secrets = st.dictionaries(names, secret_values, min_size=1)


@given(in_file=secrets, in_environment=secrets, in_flags=secrets, keyed=st.booleans())
@pytest.mark.req("H-05")
def test_no_secret_is_ever_shown_wherever_it_stands(
    in_file: dict[str, str], in_environment: dict[str, str], in_flags: dict[str, str], *, keyed: bool
) -> None:
    environ = {name.replace(":", "__"): value for name, value in in_environment.items()}
    flags = [f"{name}={value}" for name, value in in_flags.items()]
    flags += [value for value in in_flags.values() if keyed]
    with TemporaryDirectory() as folder:
        file = Path(folder, "settings.json")
        file.write_text(json.dumps({value: 1 for value in in_file.values() if keyed} | in_file))
        try:
            told = repr(loaded := load(file, environ, flags)) + repr(shown(loaded))
        except ConfigurationError as error:
            told = repr(error) + str(error)
    assert SECRET not in told


@given(
    st.dictionaries(
        names | st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([]), min_size=1
    ),
    st.data(),
)
@pytest.mark.req("H-05")
def test_a_misspelt_name_among_any_others_is_a_refusal_and_never_another_exception(
    entries: dict[str, object], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(KEYS)).path
    cut = data.draw(st.integers(0, len(key) - 1))
    wrong = key[:cut] + key[cut + 1 :]
    assume(wrong.casefold() not in VALID)
    with TemporaryDirectory() as folder:
        file = Path(folder, "settings.json")
        file.write_text(json.dumps({**entries, wrong: VALID[key]}))
        lines = problems(*(f"{name}={value}" for name, value in entries.items()), file=file)
    assert all(len(line.splitlines()) == 1 and line.isprintable() for line in lines)
    assert any(line.startswith(f"{wrong} (file ") for line in lines)
