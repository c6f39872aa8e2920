"""Something that answers every HTTP request with success and keeps every byte that it was sent."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from tests.support.listener import listening


@dataclass(frozen=True)
class Ears:
    """What was heard so far, by path."""

    url: str
    heard: dict[str, bytes]


@contextmanager
def ears() -> Generator[Ears]:
    """Listens on the loopback while inside: a collector of traces and a Pushgateway at once."""
    heard: dict[str, bytes] = {}

    def hear(request: BaseHTTPRequestHandler, body: bytes) -> None:
        said = f"{request.requestline}\n{request.headers}\n".encode() + body
        heard[request.path] = heard.get(request.path, b"") + said

    with listening(hear) as url:
        yield Ears(url, heard)
