"""Something that answers every HTTP request with success and keeps every byte that it was sent."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Ears:
    """What was heard so far, by path."""

    url: str
    heard: dict[str, bytes] = field(default_factory=dict)


@contextmanager
def ears() -> Generator[Ears]:
    """Listens on the loopback while inside: a collector of traces and a Pushgateway at once."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            said = f"{self.requestline}\n{self.headers}\n".encode() + body
            into.heard[self.path] = into.heard.get(self.path, b"") + said
            self.send_response(200)
            self.end_headers()

        do_PUT = do_POST  # noqa: N815  what a handler is called is the library's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    into = Ears(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield into
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
