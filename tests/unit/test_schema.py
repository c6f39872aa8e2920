"""The reference schema is there to be printed, and the grants are derived from the policies alone."""

from __future__ import annotations

from datetime import timedelta
from importlib.resources import files

import pytest

from pgretention import schema
from pgretention.errors import ConfigurationError
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.policy import Child, Equals, IsNull, Policy, Table

YEAR = timedelta(days=365)
SHIPPED = (activity_retention.policy(YEAR), guest_favorites_cleanup.policy(YEAR))

GRANTS = """\
-- What a role needs to run pgretention, and no more. Create the role first:
--   CREATE ROLE "worker" LOGIN;
-- UPDATE (key) is for FOR UPDATE alone: pgretention never changes a row.

-- activity-retention
GRANT USAGE ON SCHEMA "user_activity" TO "worker";
GRANT DELETE, SELECT ("session_id") ON "user_activity"."action_events" TO "worker";
GRANT DELETE, SELECT ("session_id") ON "user_activity"."property_object_views" TO "worker";
GRANT DELETE, SELECT ("ctid", "id", "ended_at", "status"), UPDATE ("id") ON "user_activity"."sessions" TO "worker";

-- guest-favorites-cleanup
GRANT USAGE ON SCHEMA "favorites" TO "worker";
GRANT DELETE, SELECT ("ctid", "id", "updated_at", "user_id"), UPDATE ("id") ON "favorites"."favorites" TO "worker";
"""


@pytest.mark.req("F-06")
def test_the_grants_are_exactly_these_whatever_the_retention_is() -> None:
    assert schema.grants(SHIPPED, "worker") == GRANTS
    other = (activity_retention.policy(YEAR / 2), guest_favorites_cleanup.policy(2 * YEAR))
    assert schema.grants(other, "worker") == GRANTS


def test_names_are_quoted_and_a_schema_is_named_once_for_each_policy() -> None:
    policy = Policy(
        name="odd\nDROP TABLE users; --",
        root=Table('a "b"', "Ünsinn; --"),
        key="select",
        expiry="at'",
        guard=(Equals("at'", "x"), IsNull("Who")),
        retention=YEAR,
        children=(Child(Table('a "b"', "c.d"), root_key="of who"), Child(Table("e", "f"), root_key="g")),
    )
    assert schema.grants([policy], 'Ö"').splitlines()[1:] == [
        '--   CREATE ROLE "Ö""" LOGIN;',
        "-- UPDATE (key) is for FOR UPDATE alone: pgretention never changes a row.",
        "",
        "-- odd DROP TABLE users; --",
        'GRANT USAGE ON SCHEMA "a ""b""" TO "Ö""";',
        'GRANT USAGE ON SCHEMA "e" TO "Ö""";',
        'GRANT DELETE, SELECT ("of who") ON "a ""b"""."c.d" TO "Ö""";',
        'GRANT DELETE, SELECT ("g") ON "e"."f" TO "Ö""";',
        'GRANT DELETE, SELECT ("ctid", "select", "at\'", "Who"), UPDATE ("select") ON "a ""b"""."Ünsinn; --" TO "Ö""";',
    ]


@pytest.mark.req("H-05")
@pytest.mark.parametrize(
    ("role", "reason"),
    [
        ("public", "'public': is a word of SQL"),
        ("none", "'none': is a word of SQL"),
        ("", "'': a name is 1 to 63 bytes"),
        ("a\nb", r"'a\\nb': a name is 1 to 63 bytes"),
        ("a\0", r"'a\\x00': a name is 1 to 63 bytes"),
        ("é" * 32, "a name is 1 to 63 bytes"),
    ],
)
def test_what_cannot_be_a_role_is_refused_in_one_line(role: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as refused:
        schema.grants(SHIPPED, role)
    assert len(str(refused.value).splitlines()) == 1


def test_a_role_may_have_any_other_name() -> None:
    for role in ("é" * 31, "Public", "pg worker"):
        assert f'TO "{role}";' in schema.grants(SHIPPED, role)


@pytest.mark.parametrize("domain", schema.DOMAINS)
def test_the_schema_of_a_domain_is_its_file(domain: str) -> None:
    text = schema.ddl(domain)
    assert text == (files("pgretention") / "sql" / f"{domain.replace('-', '_')}.sql").read_text(encoding="utf-8")
    assert f"CREATE SCHEMA {domain.replace('-', '_')};" in text


def test_no_name_means_every_domain_and_a_name_counts_once() -> None:
    assert schema.check_domains([]) == schema.DOMAINS
    assert schema.check_domains(["favorites", "user-activity", "favorites"]) == ("favorites", "user-activity")


@pytest.mark.req("H-05")
def test_unknown_domains_are_refused_all_at_once_with_the_names_there_are() -> None:
    with pytest.raises(ConfigurationError) as refused:
        schema.check_domains(["users", "favorites", "user_activity"])
    assert refused.value.problems == (
        "schema 'users': no such domain; choose from user-activity, favorites",
        "schema 'user_activity': no such domain; choose from user-activity, favorites",
    )
    with pytest.raises(ConfigurationError, match="schema 'users': no such domain"):
        schema.ddl("users")


def test_every_shipped_policy_belongs_to_a_domain() -> None:
    assert tuple(map(schema.domain_of, SHIPPED)) == schema.DOMAINS
