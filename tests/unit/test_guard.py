"""Who sees the page: the name a request was sent to, the token, and nobody at all where that was not decided (H-06)."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import pytest
from starlette.datastructures import Headers

from pgretention.config import AccessToken, HostPort
from pgretention.page.guard import Gate

TOKEN = "0123456789-abcdef"
LOOPBACK = HostPort("127.0.0.1", 9477)
EVERYWHERE = HostPort("0.0.0.0", 9477)


def gate(
    listen: HostPort = LOOPBACK, token: str | None = None, hosts: Iterable[str] = (), *, waived: bool = False
) -> Gate:
    shown = AccessToken(token) if token or waived else None
    return Gate.at(listen, shown, hosts, "worker-7")


def status(gate: Gate, host: str = "127.0.0.1:9477", authorization: str | None = None) -> int:
    """What a request is answered: 200 where it is let in."""
    said = {"host": host} | ({} if authorization is None else {"authorization": authorization})
    answer = gate.turned_away(Headers(said))
    return 200 if answer is None else answer.status_code


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.mark.req("H-06")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9477",
        "127.0.0.1",
        "127.0.0.2:80",
        "[::1]:9477",
        "[::1]",
        "localhost:8000",
        "LOCALHOST",
        "localhost.",
        "worker-7:9477",
        "10.0.0.7:9477",
        "page.example",
        "Page.Example.:443",
    ],
)
def test_a_request_to_a_name_of_ours_or_to_an_address_is_let_in(host: str) -> None:
    assert status(gate(hosts=["page.example"]), host) == 200


@pytest.mark.req("H-06")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9477",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "page.example.evil",
        "xpage.example",
        "127.1",
        "0x7f000001",
        "2130706433",
        "localhost:9477:80",
        "localhost:x",
        "[::1",
        "[::1]x",
        "[evil.example]",
        "",
        ":9477",
        " localhost",
    ],
)
def test_a_request_to_any_other_name_is_turned_away_whatever_it_shows(host: str) -> None:
    assert status(gate(hosts=["page.example"]), host) == 421
    assert status(gate(token=TOKEN, hosts=["page.example"]), host, f"Bearer {TOKEN}") == 421


def test_the_name_that_it_listens_at_is_one_of_ours() -> None:
    assert status(gate(HostPort("page.internal", 80), waived=True), "page.internal") == 200
    assert status(gate(HostPort("page.internal", 80), waived=True), "other.internal") == 421


@pytest.mark.req("H-06")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "2001:db8::1", "page.internal", "0.0.0.1"])
def test_where_others_can_ask_the_page_is_closed_until_somebody_decides(host: str) -> None:
    listen = HostPort(host, 9477)
    for shown in None, f"Bearer {TOKEN}", "Bearer ", basic("", ""):
        assert status(gate(listen), "10.0.0.7:9477", shown) == 403
    assert status(gate(listen, TOKEN), "10.0.0.7:9477") == 401
    assert status(gate(listen, TOKEN), "10.0.0.7:9477", f"Bearer {TOKEN}") == 200
    assert status(gate(listen, waived=True), "10.0.0.7:9477") == 200


@pytest.mark.req("H-06")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "::1", "localhost"])
def test_on_the_loopback_no_token_is_wanted_unless_there_is_one(host: str) -> None:
    assert status(gate(HostPort(host, 9477))) == 200
    assert status(gate(HostPort(host, 9477), TOKEN)) == 401


@pytest.mark.req("H-06")
@pytest.mark.parametrize(
    "shown",
    [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} ", basic("anybody", TOKEN), basic("", TOKEN)],
)
def test_the_token_is_shown_as_a_bearer_or_as_the_password_of_anybody(shown: str) -> None:
    assert status(gate(EVERYWHERE, TOKEN), authorization=shown) == 200


@pytest.mark.req("H-06")
@pytest.mark.parametrize(
    "shown",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        TOKEN,
        f"Token {TOKEN}",
        f"Basic {TOKEN}",
        "Basic !!!",
        "Basic",
        basic(TOKEN, ""),
        basic(TOKEN, "x"),
        basic("anybody", f"x:{TOKEN}"),
        "Bearer \udcff\udcff",
        "Bearer é",
    ],
)
def test_anything_else_is_not_the_token(shown: str) -> None:
    answer = gate(EVERYWHERE, TOKEN).turned_away({"host": "10.0.0.7", "authorization": shown})
    assert answer is not None
    assert answer.status_code == 401
    assert [scheme.partition(" ")[0] for scheme in answer.headers.getlist("www-authenticate")] == ["Basic", "Bearer"]
    assert TOKEN not in bytes(answer.body).decode()


def test_whoever_is_turned_away_is_told_the_setting() -> None:
    for turned_away, host, setting in (
        (gate(), "evil.example", "Http:Hosts"),
        (gate(EVERYWHERE), "10.0.0.7", "Http:Token is not set"),
        (gate(EVERYWHERE, TOKEN), "10.0.0.7", "Http:Token"),
    ):
        answer = turned_away.turned_away(Headers({"host": host}))
        assert answer is not None
        assert setting in bytes(answer.body).decode()
