from __future__ import annotations

import pytest

from pgretention.config import ConnectionString, load
from pgretention.errors import ConfigurationError

KEY = "ConnectionStrings:Favorites"


def connection(text: str) -> ConnectionString:
    loaded = load(None, {}, [f"{KEY}={text}"]).favorites_dsn
    assert loaded is not None
    return loaded


def refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        connection(text)
    (line,) = error.value.problems
    return line.removeprefix(f"{KEY} (--set): ").removesuffix("; allowed: a libpq URI or key=value string")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=db dbname=favorites", "host=db dbname=favorites"),
        ("postgresql://", "libpq environment"),
        (
            "postgresql://worker:hunter2@db:5433/favorites",
            "host=db port=5433 dbname=favorites user=worker password=***",
        ),
        ("postgres://db,db2:5433/favorites?sslmode=require", "host=db,db2 port=,5433 dbname=favorites sslmode=require"),
        ("host=db password='hunter 2' sslpassword=hunter2", "host=db password=*** sslpassword=***"),
        ("host=db options='-c role=hunter2' passfile=/hunter2", "host=db options=*** passfile=***"),
        ("host=db dbname=postgresql://u:hunter2@db/x", "host=db dbname=***"),
        ("service=favorites", "service=favorites"),
        ("postgresql://worker%40org:a%2Fb@db/favorites", "host=db dbname=favorites user=*** password=***"),
    ],
)
@pytest.mark.req("H-05")
def test_a_connection_string_shows_what_is_harmless_and_reveals_all_to_the_driver(text: str, shown: str) -> None:
    dsn = connection(text)
    assert dsn.shown == str(dsn) == shown
    assert dsn.reveal() == text
    assert "hunter" not in f"{dsn!r} {dsn} {dsn.shown}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("host=db sslmod=require", "libpq knows no option sslmod; did you mean sslmode?"),
        ("postgresql://u:hunter2@db/x?sslmod=require", "libpq knows no option sslmod; did you mean sslmode?"),
        ("host=db zzzzzz=1", "libpq knows no option zzzzzz"),
        ("host=db ssl-mode=require", "libpq knows no option ssl-mode; did you mean sslmode?"),
        ("host=db hünter2=require", "has an option that libpq does not know"),
        ("=db", "has an option that libpq does not know"),
        ("host=db password=hunter2 sslmod=require", "has an option that libpq does not know; did you mean sslmode?"),
        ("host=db password=a hunter2=1", "has an option that libpq does not know"),
        ("postgresql://u:1/a?zzzzzz=2@db/x", "has an option that libpq does not know"),
        ("host=db password=a hunter2", "is neither a libpq URI nor key=value"),
        ("hunter2", "is neither a libpq URI nor key=value"),
        ("host='db", "is neither a libpq URI nor key=value"),
        ("postgresql://u:hunter2%zz@db", "is neither a libpq URI nor key=value"),
        (
            "Host=db;Username=u;Password=hunter2",
            "looks like an Npgsql string; libpq wants blanks between options, as in host=… dbname=… user=…",
        ),
        ("jdbc:postgresql://db/x", "a URI starts with postgresql://"),
        ("postgre://u:hunter2@db", "a URI starts with postgresql://"),
        ("postgresql://u:a@hunter2@db/x", "an @ or / in the user or password of a URI has to be written as %40 or %2F"),
        ("postgresql://u:1/hunter2@db/x", "an @ or / in the user or password of a URI has to be written as %40 or %2F"),
        (
            "host=db port=hunter2",
            "the port is not a number; a / in the user or password of a URI has to be written as %2F",
        ),
        (
            "postgresql://u:hunter2/",
            "the port is not a number; a / in the user or password of a URI has to be written as %2F",
        ),
        ("", "is empty; give it a value or leave it out"),
        (" host=db", "has blanks around it; remove them"),
        ("'host=db'", "the quotes are part of the value; remove them"),
        ("host=db\nuser=x", "contains a character that cannot be printed, such as a line break"),
    ],
)
@pytest.mark.req("H-05")
def test_a_connection_string_that_libpq_cannot_use_is_refused_without_being_shown(text: str, why: str) -> None:
    assert refusal(text) == why
