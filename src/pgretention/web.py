"""The worker over HTTP: probes and metrics (H-06, design section 6).

What is answered is known already: no request waits for a database or a run, and none can start or stop anything. The
server has a thread of its own, and the number and the age of its connections are limited, so that whoever asks too much
keeps neither file descriptors nor time from the runs, and whoever holds connections does not keep the probes out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from pgretention.config import HostPort
from pgretention.errors import ConfigurationError
from pgretention.sinks import logs
from pgretention.sinks.log_names import ERROR

Reasons = Callable[[], Sequence[str]]
"""Why something is not so, a line each; nothing when it is. Answers at once."""

Exposition = Callable[[str], tuple[bytes, str]]
"""Metrics in the format that an Accept header asks for, and its content type. Answers at once."""

PATIENCE = timedelta(seconds=10)
"""How long a connection may last: nothing here takes as long, so a client that needs more is slow, silent or gone."""

_CONNECTIONS = 100
_STOPPING_SECONDS = 5.0
_HEADERS = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"), ("Connection", "close")]
_LOGGERS = ("uvicorn", "asyncio")


def routes(*, dead: Reasons, unready: Reasons, metrics: Exposition) -> list[Route]:
    """`/livez`, `/readyz` and `/metrics`, for GET and HEAD."""

    async def livez(_: Request) -> Response:
        return _verdict("ok", dead())

    async def readyz(_: Request) -> Response:
        return _verdict("ready", unready())

    async def scrape(request: Request) -> Response:
        content, content_type = metrics(request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": content_type})

    return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", scrape)]


@contextmanager
def serving(address: HostPort, served: Sequence[Route], patience: timedelta = PATIENCE) -> Generator[HostPort]:
    """While inside, answer requests at this address; yields where, with the port that was free when 0 is asked for.

    Connections are taken from the start on, for one request each, and are cut off when `patience` is over. Raises
    ConfigurationError where nobody can listen.
    """
    with closing(listener(address)) as taken, _logged():
        server = uvicorn.Server(_config(served, patience))
        thread = threading.Thread(target=server.run, args=([taken],), name="web", daemon=True)
        thread.start()
        try:
            yield HostPort(*taken.getsockname()[:2])
        finally:
            server.should_exit = True
            thread.join(_STOPPING_SECONDS)


def _verdict(good: str, reasons: Sequence[str]) -> Response:
    return PlainTextResponse("\n".join(reasons), 503) if reasons else PlainTextResponse(good)


def _config(served: Sequence[Route], patience: timedelta) -> uvicorn.Config:
    app = Starlette(routes=list(served))
    app.router.redirect_slashes = False  # a redirect would go to whatever host the request names
    return uvicorn.Config(
        app,
        loop="asyncio",  # these four, whatever else happens to be installed
        http=_impatient(patience),
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=_HEADERS,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )


def _impatient(patience: timedelta) -> type[asyncio.Protocol]:
    """HTTP/1.1 on connections that are cut off when their time is over, which the server itself never does to a client
    that has yet to finish its first request.
    """

    class Impatient(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._over = self.loop.call_later(patience.total_seconds(), transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._over.cancel()
            super().connection_lost(exc)

    return Impatient


def listener(address: HostPort) -> socket.socket:
    """A socket that listens; a name stands for its first address, and [::] for IPv4 too where there is that.

    Raises ConfigurationError where nobody can listen.
    """
    try:
        family, *_, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        both = address.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((str(where[0]), int(where[1])), family=family, dualstack_ipv6=both)
    except UnicodeError:
        why = "that is no host name"
    except socket.gaierror as error:
        why = str(error.strerror)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
    raise ConfigurationError([f"Http:Listen: cannot listen on {address}: {why}; choose another host:port, or off"])


@contextmanager
def _logged() -> Generator[None]:
    """While inside, what goes wrong in the server is a line of our log, not a traceback on stderr."""
    errors = _Errors(logging.ERROR)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(errors)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagated in zip(loggers, before, strict=True):
            logger.removeHandler(errors)
            logger.propagate = propagated


class _Errors(logging.Handler):
    """Hands errors on by their place and type only, since their text may quote a request."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        error_type = None if kind is None else kind.__qualname__
        logs.say(ERROR, "http server failed", logged_by=record.name, error_type=error_type)
