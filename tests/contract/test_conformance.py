"""The requirements, the tests that claim them and the table of both agree."""

from __future__ import annotations

from tests.conformance import TABLE, claims, requirements, table


def test_every_requirement_is_claimed_by_a_test_or_named_as_awaited() -> None:
    assert [number for number in requirements() if number not in claims()] == []


def test_no_test_claims_a_requirement_that_does_not_exist() -> None:
    assert sorted(claims().keys() - set(requirements())) == []


def test_the_table_in_the_docs_is_what_the_markers_say() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "run `make conformance`"
