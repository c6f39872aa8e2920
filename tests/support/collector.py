"""Collectors of traces: one that takes them apart, one that never answers."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.listener import listening

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """A span as it came over the wire; `status` is 0 for unset, 1 for ok, 2 for error."""

    name: str
    trace: str
    key: str
    parent: str
    attributes: Attributes
    events: list[tuple[str, Attributes]]
    status: int
    message: str
    seconds: float


@dataclass
class Collector:
    """What has come so far, and every byte of it."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: Attributes = field(default_factory=dict)
    raw: bytes = b""

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def collector() -> Generator[Collector]:
    """Listens on the loopback while inside."""

    into = Collector()

    def hear(request: BaseHTTPRequestHandler, body: bytes) -> None:
        assert request.headers["Content-Type"] == "application/x-protobuf"
        assert request.path == "/v1/traces"
        _take(into, body)

    with listening(hear) as into.url:
        yield into


@contextmanager
def silent_collector() -> Generator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def _take(into: Collector, body: bytes) -> None:
    request = ExportTraceServiceRequest.FromString(body)
    into.raw += body
    for resource_spans in request.resource_spans:
        into.resource |= _attributes(resource_spans.resource.attributes)
        for scope in resource_spans.scope_spans:
            into.spans += [
                Span(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    _attributes(span.attributes),
                    [(event.name, _attributes(event.attributes)) for event in span.events],
                    span.status.code,
                    span.status.message,
                    (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                )
                for span in scope.spans
            ]


def _attributes(pairs: Any) -> Attributes:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
