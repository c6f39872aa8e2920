"""What the errors of the server mean for us."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import errors

from pgretention.errors import FaultKind
from pgretention.session import LOCK_TIMEOUT
from pgretention.sqlstate import fault_of, fault_of_connecting


def test_a_lock_timeout_is_told_with_the_time_that_was_waited() -> None:
    fault = fault_of(errors.LockNotAvailable("canceling statement due to lock timeout"))

    assert fault.kind is FaultKind.LOCK_TIMEOUT
    assert f"{LOCK_TIMEOUT / timedelta(milliseconds=1):.0f} ms" in str(fault)


@pytest.mark.req("F-14")
def test_what_the_server_says_of_an_error_is_not_passed_on() -> None:
    assert "secret" not in str(fault_of(errors.RaiseException("a note: secret")))


@pytest.mark.req("F-14", "H-05")
def test_what_a_login_trigger_says_is_not_passed_on_while_a_wrong_password_is_named() -> None:
    where = 'connection to server at "127.0.0.1", port 5432 failed: FATAL:  '

    raised = fault_of_connecting(errors.OperationalError(f"{where}a note: secret\nDETAIL:  secret"), "dbname=x")
    refused = fault_of_connecting(errors.OperationalError(f'{where}password authentication failed for user "w"'), "")

    assert "secret" not in str(raised)
    assert 'password authentication failed for user "w"' in str(refused)
    assert "no connection string is set" in str(refused)
