from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgretention.config import Settings, load
from pgretention.errors import ConfigurationError

SAME_IN_EVERY_FORMAT = {
    "nested.toml": """
        [ActivityRetention]
        BatchSize = 10
        MaxRunDuration = "00:20:00"
        Enabled = false
        [Favorites.GuestRetention]
        Days = 30
    """,
    "dotted.toml": """
        ActivityRetention.BatchSize = 10
        ActivityRetention.MaxRunDuration = "20m"
        ActivityRetention.Enabled = false
        Favorites.GuestRetention.Days = 30
    """,
    "colons.toml": """
        "ActivityRetention:BatchSize" = 10
        "ActivityRetention:MaxRunDuration" = "PT20M"
        "ActivityRetention:Enabled" = "False"
        "Favorites:GuestRetention:Days" = "30"
    """,
    "mixed.toml": """
        "favorites:guestretention".days = 30
        [ACTIVITYRETENTION]
        batchsize = "10"
        MAXRUNDURATION = "20m"
        eNABLED = false
    """,
    "nested.yaml": """
        ActivityRetention:
          BatchSize: 10
          MaxRunDuration: 00:20:00
          Enabled: false
        Favorites: {GuestRetention: {Days: 30}}
    """,
    "colons.yml": """
        ActivityRetention:BatchSize: 10
        ActivityRetention:MaxRunDuration: 20m
        ActivityRetention: {Enabled: 'False'}
        Favorites:GuestRetention:
          Days: '30'
    """,
    "nested.JSON": """{
        "ActivityRetention": {"BatchSize": 10, "MaxRunDuration": "20m", "Enabled": false},
        "Favorites": {"GuestRetention": {"Days": 30}}
    }""",
    "mixed.json": """{
        "ActivityRetention:BatchSize": "10",
        "activityretention": {"maxrunduration": "20m"},
        "ActivityRetention": {"enabled": "FALSE"},
        "Favorites:GuestRetention": {"Days": 30}
    }""",
}

BOMB = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))

# What stands in a file, and how the line that refuses it goes on after "file PATH: ".
REFUSED = [
    ("bad.toml", "a = 1\nb = \n", "is not valid TOML: Invalid value (at line 2, column 5)"),
    ("bad.toml", "hunter2", "is not valid TOML: Expected '=' after a key"),
    ("bad.toml", "[hunter2]\n[hunter2]\n", "is not valid TOML: Cannot declare (…"),
    ("twice.toml", "[Http]\nListen = 'off'\nListen = 'off'\n", "is not valid TOML: Cannot overwrite a value"),
    ("long.toml", "a = " + "9" * 5000, "is not valid TOML: a number is too long"),
    ("deep.toml", "a = " + "[" * 9000, "is nested too deeply"),
    ("bad.yaml", "a: b: c\n", "is not valid YAML: mapping values are not allowed here (at line 1, column 5)"),
    ("bad.yaml", "a: [hunter2\n", "is not valid YAML: expected ',' or ']', but got … (at line 2, column 1)"),
    ("bad.yaml", "a: *hunter2\n", "is not valid YAML: found undefined alias … (at line 1, column 4)"),
    ("bad.yaml", "a: \x01\n", "is not valid YAML: it holds a character that YAML does not allow"),
    ("two.yaml", "a: 1\n---\nb: 2\n", "is not valid YAML: but found another document (at line 2, column 1)"),
    ("deep.yaml", "[" * 9000, "is nested too deeply"),
    ("alias.yaml", "a: &a [x]\nb: *a\n", "uses a YAML alias (of line 1); write the value out"),
    ("loop.yaml", "a: &a [*a]\n", "uses a YAML alias (of line 1); write the value out"),
    ("bomb.yaml", f"a0: &a0 [x, x]\n{BOMB}", "uses a YAML alias (of line 1); write the value out"),
    ("key.yaml", "? [a, b]\n: 1\n", "has a name that is not text at line 1"),
    ("list.yaml", "- a\n", "has to hold named settings at its top level"),
    ("text.yaml", "hunter2\n", "has to hold named settings at its top level"),
    ("bad.json", '{"a": }', "is not valid JSON: Expecting value (at line 1, column 7)"),
    ("empty.json", "", "is not valid JSON: Expecting value (at line 1, column 1)"),
    ("list.json", "[]", "has to hold named settings at its top level"),
    ("null.json", "null", "has to hold named settings at its top level"),
    ("long.json", '{"a": ' + "9" * 5000 + "}", "is not valid JSON: a number is too long"),
    ("deep.json", "[" * 60000, "is nested too deeply"),
    ("settings.ini", "[a]\n", "has to end in .toml, .yaml, .yml or .json"),
    ("settings", "", "has to end in .toml, .yaml, .yml or .json"),
    ("large.json", " " * 70_000, "is larger than 65536 bytes"),
]

NULL = "is null; give it a value or leave it out"
SECTION = "is a section; put settings in it or leave it out"
TWICE = "given twice; keep one"
NO_UNIT = "a bare number has no unit"
NOT_WHOLE = "is not a whole number"
LISTED = "no such setting; `pgretention config` lists them all"
TOML_TIME = "is a TOML date or time; put quotes around it"

# What stands in a file, the setting it is about, and how the line goes on after "SETTING (file PATH): ".
ENTRIES = [
    ("v.yaml", "ActivityRetention:\n  BatchSize:\n", "ActivityRetention:BatchSize", NULL),
    ("v.yaml", "ActivityRetention: {Enabled: ~}\n", "ActivityRetention:Enabled", NULL),
    ("v.yaml", "ActivityRetention: {Enabled: yes}\n", "ActivityRetention:Enabled", "'yes' is neither true nor false"),
    ("v.yaml", "ActivityRetention: {Enabled: ''}\n", "ActivityRetention:Enabled", "is empty; "),
    ("v.yaml", "ActivityRetention: {RetentionPeriod: .inf}\n", "ActivityRetention:RetentionPeriod", "'.inf': is not a"),
    ("v.yaml", "ActivityRetention: {BatchSize: 5_000}\n", "ActivityRetention:BatchSize", f"'5_000' {NOT_WHOLE}"),
    ("v.yaml", "ActivityRetention:\n", "ActivityRetention", SECTION),
    ("v.yaml", "Http: off\n", "Http", SECTION),
    ("v.yaml", "Http: {Listen: off}\nhttp:listen: off\n", "Http:Listen", TWICE),
    ("v.yaml", "Http: {Listen: off, Listen: off}\n", "Http:Listen", TWICE),
    ("v.yaml", "Http: {Listen: [off]}\n", "Http:Listen", "cannot be a list"),
    ("v.yaml", "5: 1\n", "5", LISTED),
    ("v.yaml", "<<: 1\n", "a name that is not shown", LISTED),
    ("v.json", '{"ActivityRetention": {"BatchSize": null}}', "ActivityRetention:BatchSize", NULL),
    ("v.json", '{"ActivityRetention": null}', "ActivityRetention", SECTION),
    ("v.json", '{"Http": {"Listen": "off"}, "Http:Listen": "off"}', "Http:Listen", TWICE),
    ("v.json", '{"Http": {"Listen": "off", "Listen": "off"}}', "Http:Listen", TWICE),
    ("v.json", '{"Http:Listen": {"Port": 1}}', "Http:Listen", "cannot be a table"),
    ("v.json", '{"ActivityRetention:BatchSize": 5.0}', "ActivityRetention:BatchSize", NOT_WHOLE),
    ("v.json", '{"ActivityRetention:BatchSize": NaN}', "ActivityRetention:BatchSize", NOT_WHOLE),
    ("v.json", '{"ActivityRetention:BatchSize": true}', "ActivityRetention:BatchSize", "cannot be true or false"),
    ("v.json", '{"ActivityRetention:Enabled": 1}', "ActivityRetention:Enabled", "cannot be a number"),
    ("v.json", '{"ActivityRetention:RetentionPeriod": 365}', "ActivityRetention:RetentionPeriod", NO_UNIT),
    ("v.json", '{"ActivityRetention:RetentionPeriod": Infinity}', "ActivityRetention:RetentionPeriod", NO_UNIT),
    ("v.json", '{"ActivityRetention:RetentionPeriod": true}', "ActivityRetention:RetentionPeriod", "cannot be true"),
    ("v.toml", "ActivityRetention.RetentionPeriod = 365", "ActivityRetention:RetentionPeriod", NO_UNIT),
    ("v.toml", "ActivityRetention.MaxRunDuration = 00:30:00", "ActivityRetention:MaxRunDuration", TOML_TIME),
    ("v.toml", "ActivityRetention.RetentionPeriod = 2025-01-01", "ActivityRetention:RetentionPeriod", TOML_TIME),
    ("v.toml", "ActivityRetention.BatchSize = 5.0", "ActivityRetention:BatchSize", NOT_WHOLE),
    ("v.toml", f"ActivityRetention.BatchSize = 0x{'f' * 6000}", "ActivityRetention:BatchSize", "is out of range"),
    ("v.toml", "Http.Listen = false", "Http:Listen", 'write "off" to listen nowhere'),
    ("v.toml", "Http = 'off'", "Http", SECTION),
    ("v.toml", "http.listen = 'off'\n[Http]\nListen = 'off'", "Http:Listen", TWICE),
    ("v.toml", "ConnectionStrings.Favorites = 5", "ConnectionStrings:Favorites", "cannot be a number"),
    (
        "v.toml",
        "[ActivityRetentoin]\nEnabled = 1",
        "ActivityRetentoin",
        "no such setting; did you mean ActivityRetention?",
    ),
    ("v.toml", '"Foo\\nBar" = 5', "a name that is not shown", LISTED),
]


def written(folder: Path, name: str, content: str) -> Path:
    file = folder / name
    file.write_bytes(content.encode())
    return file


def problems(file: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refusal:
        load(file, {}, ())
    return refusal.value.problems


@pytest.mark.parametrize("name", SAME_IN_EVERY_FORMAT)
def test_formats_nesting_colons_and_case_all_mean_the_same(tmp_path: Path, name: str) -> None:
    loaded = load(written(tmp_path, name, dedent(SAME_IN_EVERY_FORMAT[name])), {}, ())
    assert loaded.activity_retention.batch_size == 10
    assert loaded.activity_retention.max_run_duration == timedelta(minutes=20)
    assert loaded.activity_retention.enabled is False
    assert loaded.guest_favorites.retention == timedelta(days=30)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.toml", ""), ("a.yaml", "# nothing\n"), ("a.json", "{}"), ("b.toml", "[ActivityRetention]\n")],
)
def test_a_file_without_settings_leaves_the_defaults(tmp_path: Path, name: str, content: str) -> None:
    assert load(written(tmp_path, name, content), {}, ()) == load(None, {}, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", "Http.Listen = 'off'\r\n"),
        ("a.json", '{"Http:Listen":\r\n"off"}'),
        ("a.yaml", "Http:\r\n  Listen: off\r\n"),
    ],
)
def test_line_ends_and_byte_order_mark_of_windows_are_read(tmp_path: Path, name: str, content: str) -> None:
    assert load(written(tmp_path, name, f"\ufeff{content}"), {}, ()).http_listen is None


@pytest.mark.parametrize(("name", "content", "why"), REFUSED)
@pytest.mark.req("H-05")
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: str, why: str) -> None:
    file = written(tmp_path, name, content)
    (line,) = problems(file)
    assert line.startswith(f"file {file}: {why}")
    assert "hunter2" not in line


@pytest.mark.parametrize(("name", "content", "key", "why"), ENTRIES)
@pytest.mark.req("H-05")
def test_an_entry_that_cannot_be_used_is_one_line_with_its_name_and_file(
    tmp_path: Path, name: str, content: str, key: str, why: str
) -> None:
    file = written(tmp_path, name, content)
    (line,) = problems(file)
    assert line.startswith(f"{key} (file {file}): {why}")


@pytest.mark.req("H-05")
def test_a_path_that_leads_to_no_readable_file_is_one_line(tmp_path: Path) -> None:
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"a = '\xe9'")
    absent = tmp_path / "ab\nsent.toml"
    assert problems(absent) == (f"file {tmp_path}/ab\\nsent.toml: cannot be read: No such file or directory",)
    assert problems(loop) == (f"file {loop}: cannot be read: Too many levels of symbolic links",)
    assert problems(pipe) == (f"file {pipe}: is not a file",)
    assert problems(folder) == (f"file {folder}: is not a file",)
    assert problems(latin) == (f"file {latin}: is not UTF-8",)
    assert problems(latin / "below.toml") == (f"file {latin}/below.toml: cannot be read: Not a directory",)


def test_a_path_with_a_null_character_is_one_line() -> None:
    (line,) = problems(Path("a\0.toml"))
    assert line.startswith("file a\\x00.toml: cannot be read")


names = st.sampled_from(["ActivityRetention", "BatchSize", "Http", "Listen", "http:listen"]) | st.text()
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ActivityRetention", "BatchSize", "Http", "Listen", "http:listen"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
)


@given(st.text() | trees.map(json.dumps), st.sampled_from([".toml", ".yaml", ".json"]))
@settings(max_examples=400)
@pytest.mark.req("H-05")
def test_any_text_in_a_file_is_settings_or_lines_of_refusal(content: str, suffix: str) -> None:
    with TemporaryDirectory() as folder:
        file = written(Path(folder), f"any{suffix}", content.encode("utf-8", "replace").decode())
        try:
            outcome: Settings | tuple[str, ...] = load(file, {}, ())
        except ConfigurationError as error:
            outcome = error.problems
    assert isinstance(outcome, Settings) or all(len(line.splitlines()) == 1 for line in outcome)
