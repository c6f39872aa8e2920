"""An HTTP server on the loopback that takes whatever is sent to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Hear = Callable[[BaseHTTPRequestHandler, bytes], None]
"""What is done with a request and its body; to raise leaves it unanswered, anything else answers 200."""


@contextmanager
def listening(hear: Hear) -> Generator[str]:
    """While inside, hand every POST and PUT on; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hear(self, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        do_PUT = do_POST  # noqa: N815  what a handler is called is the library's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
