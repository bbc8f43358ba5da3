"""A server that takes spans by OTLP over gRPC, as a collector does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Received:
    """A span. `links`: ids of other spans; `text`: all that it says."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    failure: str
    text: str


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """`endpoint`: for OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self) -> None:
        self._spans: list[Received] = []
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:
        found = []
        for of_process in request.resource_spans:
            of = {a.key: a.value.string_value for a in of_process.resource.attributes}
            spans = (span for scope in of_process.scope_spans for span in scope.spans)
            found += [_received(of["service.name"], span) for span in spans]
        with self._lock:
            self._spans += found
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self, trace: str) -> dict[tuple[str, str], Received]:
        """The spans of a trace, by service and name: the last one of each."""
        with self._lock:
            return {(span.service, span.name): span for span in self._spans if span.trace == trace}

    def traces(self) -> set[str]:
        with self._lock:
            return {span.trace for span in self._spans}

    def close(self) -> None:
        self._server.stop(None).wait()


def _received(service: str, span: Any) -> Received:
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    links = tuple(link.span_id.hex() for link in span.links)
    return Received(service, span.name, *ids, links, span.status.message, str(span))


@contextmanager
def collecting() -> Iterator[Collector]:
    made = Collector()
    try:
        yield made
    finally:
        made.close()
