"""Requests over real sockets, to a server that knows nothing of jobs and databases."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from io import StringIO

import pytest
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgretention import web
from pgretention.config import HostPort
from pgretention.errors import ConfigurationError
from pgretention.sinks import logs
from pgretention.sinks.metrics import Metrics
from tests.support.facts import ACTIVITY, StandingClock, stories
from tests.support.gates import until
from tests.support.scrapes import ask, series

ANYWHERE = HostPort("127.0.0.1", 0)
PATHS = ("/livez", "/readyz", "/metrics")


def nothing() -> Sequence[str]:
    return ()


def routes(*, dead: web.Reasons = nothing, unready: web.Reasons = nothing) -> list[Route]:
    return web.routes(dead=dead, unready=unready, metrics=Metrics([ACTIVITY], StandingClock()).exposition)


@pytest.fixture
def log() -> Iterator[StringIO]:
    stream = StringIO()
    logs.configure("json", "debug", stream)
    yield stream
    structlog.reset_defaults()


@pytest.mark.req("H-06")
def test_a_live_and_ready_worker_says_so_in_a_word() -> None:
    with web.serving(ANYWHERE, routes()) as at:
        live, ready = ask(at, "/livez"), ask(at, "/readyz")
    assert (live.status, live.text) == (200, "ok")
    assert (ready.status, ready.text) == (200, "ready")
    assert live.headers["content-type"] == ready.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.req("H-06")
def test_what_is_wrong_is_a_503_with_a_line_for_each_reason_and_one_probe_does_not_fail_for_the_other() -> None:
    reasons = ["database of activity-retention not seen for 95 s", "stopping"]
    with web.serving(ANYWHERE, routes(unready=lambda: reasons)) as at:
        assert ask(at, "/livez").status == 200
        ready = ask(at, "/readyz")
    assert (ready.status, ready.text.splitlines()) == (503, reasons)
    with web.serving(ANYWHERE, routes(dead=lambda: ["activity-retention has no thread"])) as at:
        assert ask(at, "/readyz").status == 200
        live = ask(at, "/livez")
    assert (live.status, live.text) == (503, "activity-retention has no thread")


@pytest.mark.req("A-22", "H-06")
def test_a_scrape_answers_what_the_metrics_are_at_that_moment() -> None:
    metrics = Metrics([ACTIVITY], StandingClock())
    served = web.routes(dead=nothing, unready=nothing, metrics=metrics.exposition)
    with web.serving(ANYWHERE, served) as at:
        before = ask(at, "/metrics")
        for fact in stories(ACTIVITY)["completed"]:
            metrics(fact)
        after = ask(at, "/metrics")
    assert before.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert series(before.text)["activity_retention_deleted_sessions_total"] == 0
    assert series(after.text)["activity_retention_deleted_sessions_total"] == 6000


def test_a_scraper_gets_openmetrics_if_it_asks_for_it_and_the_plain_format_if_it_asks_for_nonsense() -> None:
    with web.serving(ANYWHERE, routes()) as at:
        modern = ask(at, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        odd = ask(at, "/metrics", Accept="application/openmetrics-text; version=new")
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0;")
    assert modern.text.endswith("# EOF\n")
    assert (odd.status, odd.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_like_get_without_a_body_and_no_other_method_is_taken(path: str) -> None:
    with web.serving(ANYWHERE, routes()) as at:
        got, head = ask(at, path), ask(at, path, "HEAD")
        assert (head.status, head.text) == (200, "")
        assert head.headers["content-length"] == got.headers["content-length"] == str(len(got.text.encode()))
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            refused = ask(at, path, method)
            assert refused.status == 405
            assert {word.strip() for word in refused.headers["allow"].split(",")} == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "path", ["/", "/livez/", "//livez", "/metrics/x", "/../etc/passwd", "/%2e%2e/x", "/favicon.ico"]
)
def test_any_other_path_is_not_found_and_leads_nowhere(path: str) -> None:
    with web.serving(ANYWHERE, routes()) as at:
        answer = ask(at, path, Host="somewhere.example")
    assert (answer.status, answer.text) == (404, "Not Found")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "location" not in answer.headers


def test_every_answer_is_not_to_be_stored_nor_guessed_at_and_names_no_software() -> None:
    with web.serving(ANYWHERE, routes(unready=lambda: ["stopping"])) as at:
        for answer in (*(ask(at, path) for path in (*PATHS, "/nowhere")), ask(at, "/livez", "POST")):
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "server" not in answer.headers


def test_requests_leave_no_line_in_the_log_nor_on_stderr(log: StringIO, capfd: pytest.CaptureFixture[str]) -> None:
    with web.serving(ANYWHERE, routes()) as at:
        ask(at, "/metrics")
        ask(at, "/nowhere")
        with socket.create_connection((at.host, at.port)) as stranger:
            stranger.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            assert stranger.recv(100).startswith(b"HTTP/1.1 400 ")
    assert log.getvalue() == ""
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_ours_is_a_bare_500_and_a_line_in_the_log_without_a_traceback(
    log: StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    async def broken(_: Request) -> Response:
        raise KeyError("a secret")

    with web.serving(ANYWHERE, [*routes(), Route("/broken", broken)]) as at:
        answer = ask(at, "/broken")
        until(lambda: log.getvalue().endswith("\n"))
        assert ask(at, "/livez").status == 200
    assert (answer.status, answer.text) == (500, "Internal Server Error")
    said = json.loads(log.getvalue())
    assert (said["level"], said["event"], said["error_type"]) == ("error", "http server failed", "KeyError")
    assert "secret" not in log.getvalue()
    assert capfd.readouterr() == ("", "")


def test_an_address_that_somebody_listens_at_is_refused_in_one_line_that_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = HostPort("127.0.0.1", somebody.getsockname()[1])
        with pytest.raises(ConfigurationError) as refused, web.serving(taken, routes()):
            pass
    assert refused.value.problems == (
        f"Http:Listen: cannot listen on {taken}: Address already in use; choose another host:port, or off",
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "nowhere.invalid", "a" * 64 + ".invalid"])
def test_an_address_that_is_not_of_this_machine_is_refused(host: str) -> None:
    address = HostPort(host, 9477)
    with pytest.raises(ConfigurationError) as refused, web.serving(address, routes()):
        pass
    (problem,) = refused.value.problems
    assert problem.startswith(f"Http:Listen: cannot listen on {address}: ")
    assert problem.endswith("; choose another host:port, or off")


@pytest.mark.req("H-06")
def test_it_listens_at_the_address_it_is_given_and_at_no_other() -> None:
    with web.serving(ANYWHERE, routes()) as at:
        assert at.host == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            ask(HostPort("127.0.0.2", at.port), "/livez")


def test_every_address_means_every_address() -> None:
    with web.serving(HostPort("0.0.0.0", 0), routes()) as at:
        assert ask(HostPort("127.0.0.2", at.port), "/livez").text == "ok"


def test_a_name_stands_for_its_address() -> None:
    with web.serving(HostPort("localhost", 0), routes()) as at:
        assert ask(at, "/livez").text == "ok"


def test_it_stops_although_clients_hold_their_connections_and_frees_the_address() -> None:
    with web.serving(ANYWHERE, routes()) as at:
        silent = socket.create_connection((at.host, at.port))
        halfway = socket.create_connection((at.host, at.port))
        halfway.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        kept = socket.create_connection((at.host, at.port))
        kept.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200 OK")
    assert not [thread for thread in threading.enumerate() if thread.name == "web"]
    for client in silent, halfway, kept:
        client.close()
    with web.serving(at, routes()) as again:
        assert again == at
        assert ask(again, "/livez").text == "ok"


def test_whoever_holds_many_connections_gets_no_more_of_them() -> None:
    with web.serving(ANYWHERE, routes()) as at:
        held = [socket.create_connection((at.host, at.port)) for _ in range(150)]
        try:
            until(lambda: ask(at, "/livez").status == 503)
        finally:
            for each in held:
                each.close()
        until(lambda: ask(at, "/livez").status == 200)


@pytest.mark.parametrize("said", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "halfway"])
def test_clients_that_never_finish_a_request_are_cut_off_and_do_not_keep_the_probes_out(said: bytes) -> None:
    with web.serving(ANYWHERE, routes(), timedelta(seconds=1)) as at:
        held = [socket.create_connection((at.host, at.port)) for _ in range(150)]
        try:
            for each in held:
                with suppress(ConnectionError):  # cut off already
                    each.sendall(said)
            until(lambda: ask(at, "/livez").status == 200)
            assert [over(each) for each in held] == [True] * 150
        finally:
            for each in held:
                each.close()


def over(connection: socket.socket) -> bool:
    """Whether the server ends a connection without a word; does not return before it does."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_is_for_one_request() -> None:
    with web.serving(ANYWHERE, routes()) as at:
        assert ask(at, "/livez").headers["connection"] == "close"
        with socket.create_connection((at.host, at.port)) as client, client.makefile("rb") as answer:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.read().endswith(b"\r\n\r\nok"), "read to the end, which comes at once"


def test_it_starts_and_stops_at_once_any_number_of_times() -> None:
    for _ in range(20):
        with web.serving(ANYWHERE, routes()):
            pass
    assert not [thread for thread in threading.enumerate() if thread.name == "web"]
