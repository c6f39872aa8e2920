"""Who may see the page, and what a browser may do with it (H-06).

The page has no cookies and changes nothing, so whoever is let in is let in request by request. A site on the internet
could still have a visitor's browser read a page on the loopback, by a name of its own that leads there; so the name a
request was sent to has to be one of ours. An address as such cannot be borrowed in that way.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import PlainTextResponse, Response

from pgretention.config import AccessToken, HostPort

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
"""Of every answer that the page gives: nothing from elsewhere, nothing into elsewhere."""

_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})
_WANTED: Final = (
    "This page wants the token of Http:Token: as `Authorization: Bearer TOKEN`, or in a browser as the password of any "
    "user name.\n"
)
_CLOSED: Final = (
    "This page is closed, since others than this machine can reach it and Http:Token is not set: set it to a token, or "
    "to off to show the page to everybody. Probes and metrics answer without.\n"
)
_UNKNOWN_NAME: Final = (
    "This worker does not know the name that the request was sent to; if it is right, add it to Http:Hosts.\n"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in that name one of `hosts` or an address, and show the token if there is one.

    `closed` turns everybody away: it is set where others than this machine may ask and nobody has decided who.
    """

    hosts: frozenset[str]
    token: str | None = None
    closed: bool = False

    @classmethod
    def at(cls, listen: HostPort, token: AccessToken | None, hosts: Iterable[str], machine: str) -> Gate:
        """The gate of a worker that listens there; `machine` is the host name of this one."""
        names = {*_LOOPBACK_NAMES, listen.host, machine, *hosts}
        known = frozenset(name.lower().rstrip(".") for name in names if name)
        secret = None if token is None else token.reveal()
        return cls(known, secret, closed=token is None and not is_loopback(listen.host))

    def turned_away(self, headers: Mapping[str, str]) -> Response | None:
        """The answer to whoever is not let in; None for the others."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse(_UNKNOWN_NAME, 421)
        if self.closed:
            return PlainTextResponse(_CLOSED, 403)
        if self.token is not None and not _shows(self.token, headers.get("authorization", "")):
            answer = PlainTextResponse(_WANTED, 401)
            answer.headers.append("WWW-Authenticate", 'Basic realm="pgretention", charset="UTF-8"')
            answer.headers.append("WWW-Authenticate", 'Bearer realm="pgretention"')
            return answer
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        return name is not None and (name in self.hosts or _is_address(name))


def is_loopback(host: str) -> bool:
    """Whether an address or a name can be reached from this machine only."""
    if host.lower().rstrip(".") in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str | None:
    """The name in a Host header, without its port; None where there is none."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name.lower() if bracket and _is_port(rest) else None
    name, colon, port = host.partition(":")
    return name.lower().rstrip(".") if name and _is_port(colon + port) else None


def _is_port(rest: str) -> bool:
    return rest == "" or (rest[0] == ":" and rest[1:].isascii() and rest[1:].isdigit())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _shows(token: str, authorization: str) -> bool:
    """Whether a request shows the token, compared in a time that tells nothing of it."""
    scheme, _, shown = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            said = shown.strip().encode("utf-8", "surrogateescape")
        case "basic":
            try:
                _, _, said = base64.b64decode(shown.strip(), validate=True).partition(b":")
            except (binascii.Error, ValueError):
                return False
        case _:
            return False
    return hmac.compare_digest(said, token.encode())
